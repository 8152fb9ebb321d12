#include "common/cuda/launch/launch.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "common/cuda/launch/error.hpp"

namespace flash {
namespace {

/// The kernel's name as the source spells it: "void flash_attention_2::flash_attention_2<64>(...)"
/// without its parameters.
std::string kernel_name(const void* kernel) {
    const char* mangled = nullptr;
    if (cudaFuncGetName(&mangled, kernel) != cudaSuccess) {
        cudaGetLastError();
        return "a kernel";
    }
    int status = 0;
    char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    std::string name = status == 0 ? demangled : mangled;
    std::free(demangled);
    return name.substr(0, name.find('('));
}

std::string describe(dim3 size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

[[noreturn]] void refuse(const void* kernel, const Grid& grid, const std::string& reason) {
    throw Error("cannot launch " + kernel_name(kernel) + "\nat " + grid.where.file_name() + ":" +
                std::to_string(grid.where.line()) + ": " + reason);
}

// What CUDA says of devices and kernels does not change, and asking costs microseconds of each
// call. So answers are kept, for all host threads. CUDA is asked with the lock held, or two threads
// might set a kernel's limit at once.
std::mutex one_asks;

int current_device() {
    int device = 0;
    FLASH_CHECK_CUDA(cudaGetDevice(&device));
    return device;
}

/// The lock is held.
int device_limit(cudaDeviceAttr attribute, int device) {
    static std::map<std::pair<cudaDeviceAttr, int>, int> known;
    if (const auto found = known.find({attribute, device}); found != known.end()) {
        return found->second;
    }
    int value = 0;
    FLASH_CHECK_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
    return known[{attribute, device}] = value;
}

/// The kernel's attributes on a device, which the caller may change; the lock is held. `grid` is
/// for the message.
cudaFuncAttributes& attributes_of(const void* kernel, int device, const Grid& grid) {
    static std::map<std::pair<const void*, int>, cudaFuncAttributes> known;
    if (const auto found = known.find({kernel, device}); found != known.end()) {
        return found->second;
    }
    cudaFuncAttributes attributes{};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
        cudaGetLastError();
        refuse(kernel, grid,
               "it was not compiled for this GPU, of compute capability " +
                   std::to_string(device_limit(cudaDevAttrComputeCapabilityMajor, device)) + "." +
                   std::to_string(device_limit(cudaDevAttrComputeCapabilityMinor, device)) +
                   " (wgmma and TMA need 9.0: H100, H200)\nIt also runs on the CPU: scripts/step "
                   "--preset simt RUNG");
    }
    FLASH_CHECK_CUDA(status);
    return known.emplace(std::pair(kernel, device), attributes).first->second;
}

} // namespace

size_t max_shared_memory_per_block() {
    const std::lock_guard lock(one_asks);
    return static_cast<size_t>(
        device_limit(cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device()));
}

int multiprocessors() {
    const std::lock_guard lock(one_asks);
    return device_limit(cudaDevAttrMultiProcessorCount, current_device());
}

int resident_blocks(const void* kernel, int threads, size_t smem_bytes) {
    const auto block = static_cast<unsigned>(threads);
    // raises the limit on dynamic shared memory, which counts here
    prepare_launch(kernel, 1, block, smem_bytes);
    static std::map<std::tuple<const void*, int, int, size_t>, int> known;
    const std::lock_guard lock(one_asks);
    const int device = current_device();
    const std::tuple launch(kernel, device, threads, smem_bytes);
    if (const auto found = known.find(launch); found != known.end()) {
        return found->second;
    }
    int per_sm = 0;
    FLASH_CHECK_CUDA(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, smem_bytes));
    return known[launch] = per_sm * device_limit(cudaDevAttrMultiProcessorCount, device);
}

void clear_bytes(void* memory, size_t bytes) {
    FLASH_CHECK_CUDA(cudaMemsetAsync(memory, 0, bytes, current_stream));
}

void prepare_launch(const void* kernel, const Grid& grid, dim3 block, size_t smem_bytes) {
    // Compute capability 5.0 to 12.x agree on these; CUDA itself would only say "invalid
    // configuration argument".
    constexpr unsigned max_grid_x = 2147483647;
    constexpr unsigned max_grid_yz = 65535;
    const dim3 blocks = grid.size;
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || block.x == 0 || block.y == 0 ||
        block.z == 0) {
        refuse(kernel, grid,
               "a grid of " + describe(blocks) + " blocks of " + describe(block) +
                   " threads is empty");
    }
    if (blocks.x > max_grid_x || blocks.y > max_grid_yz || blocks.z > max_grid_yz) {
        refuse(kernel, grid,
               "a grid of " + describe(blocks) +
                   " blocks is too large; the limit is 2147483647 in x and "
                   "65535 in y and z");
    }

    const std::lock_guard lock(one_asks);
    const int device = current_device();
    cudaFuncAttributes& attributes = attributes_of(kernel, device, grid);
    const size_t threads = size_t{block.x} * block.y * block.z;
    if (threads > static_cast<size_t>(attributes.maxThreadsPerBlock)) {
        refuse(kernel, grid,
               std::to_string(threads) + " threads per block are too many: at " +
                   std::to_string(attributes.numRegs) + " registers per thread it can have " +
                   std::to_string(attributes.maxThreadsPerBlock));
    }
    const auto most =
        static_cast<size_t>(device_limit(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (smem_bytes + attributes.sharedSizeBytes > most) {
        refuse(kernel, grid,
               std::to_string(smem_bytes + attributes.sharedSizeBytes) +
                   " bytes of shared memory per block are too many: this device has " +
                   std::to_string(most));
    }
    if (smem_bytes > static_cast<size_t>(attributes.maxDynamicSharedSizeBytes)) {
        FLASH_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(smem_bytes)));
        attributes.maxDynamicSharedSizeBytes = static_cast<int>(smem_bytes);
    }
}

void check_launch(const void* kernel, const Grid& grid, dim3 block, size_t smem_bytes) {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) {
        refuse(kernel, grid,
               "<<<" + describe(grid.size) + " blocks, " + describe(block) + " threads, " +
                   std::to_string(smem_bytes) + " bytes>>> failed: " + cudaGetErrorString(status) +
                   " (" + cudaGetErrorName(status) + ")");
    }
}

} // namespace flash
