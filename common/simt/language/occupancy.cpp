#include "common/simt/language/occupancy.hpp"

#include "common/simt/machine/grid.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {

size_t static_shared_bytes(const void* kernel) { return kernel_at(kernel).shared_bytes; }

int blocks_on_sm(const void* kernel, int threads, size_t dynamic_bytes) {
    if (threads < 1 || threads > 1024) {
        return 0;
    }
    // the system keeps 1 KiB of each block's part, so the largest block leaves that
    constexpr size_t own = 1 << 10;
    const size_t shared = shared_memory_limit(false) + own;
    const size_t of_block = dynamic_bytes + static_shared_bytes(kernel) + own;
    const int in_whole_warps = (threads + 31) / 32 * 32;
    return std::min(
        {blocks_per_sm, threads_per_sm / in_whole_warps, static_cast<int>(shared / of_block)});
}

} // namespace flash::simt

using namespace flash::simt;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    *attributes = {};
    attributes->sharedSizeBytes = static_shared_bytes(kernel);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32; // g++ does not say; with so many, registers limit nothing
    attributes->ptxVersion = attributes->binaryVersion = 80;
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(dynamic_shared_limit(kernel_at(kernel)));
    return cudaSuccess;
}

cudaError_t flash::simt::set_attribute(const void* kernel, bool for_hopper,
                                       cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return cudaSuccess;
    }
    const bool fits = value >= 0 && static_cast<size_t>(value) + static_shared_bytes(kernel) <=
                                        shared_memory_limit(for_hopper);
    if (!fits) {
        return noted(cudaErrorInvalidValue);
    }
    set_dynamic_shared_limit(kernel_at(kernel), static_cast<size_t>(value));
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t dynamic_bytes) {
    *blocks = blocks_on_sm(kernel, threads, dynamic_bytes);
    return cudaSuccess;
}
