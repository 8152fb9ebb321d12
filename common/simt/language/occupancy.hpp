// What a kernel may ask for, and how many of its blocks the emulated GPU holds at the same time.
// Registers do not count: g++ says nothing of them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/simt/language/errors.hpp"
#include "common/simt/language/launch.hpp"
#include "common/simt/machine/grid.hpp"

namespace flash::simt {

/// Bytes of __shared__ variables of a kernel.
size_t static_shared_bytes(const void* kernel);

/// Blocks of a kernel that one SM holds.
int blocks_on_sm(const void* kernel, int threads, size_t dynamic_bytes);

/// Of a kernel, or of what a program has cast to void*.
template <class Kernel> const void* address_of(Kernel* kernel) {
    return (const void*)kernel; // a cast of either kind
}

} // namespace flash::simt

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
    int maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
inline constexpr int cudaSharedmemCarveoutDefault = -1;
inline constexpr int cudaSharedmemCarveoutMaxShared = 100;
inline constexpr int cudaSharedmemCarveoutMaxL1 = 0;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
namespace flash::simt {
cudaError_t set_attribute(const void* kernel, bool for_hopper, cudaFuncAttribute attribute,
                          int value);
} // namespace flash::simt
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t dynamic_bytes);

template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
    return cudaFuncGetAttributes(attributes, flash::simt::address_of(kernel));
}
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute,
                                        int value) {
    return flash::simt::set_attribute(kernel, false, attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
    constexpr bool for_hopper = flash::simt::is_for_hopper<Parameters...>;
    return flash::simt::set_attribute(flash::simt::address_of(kernel), for_hopper, attribute,
                                      value);
}
template <class Kernel, class Choice> cudaError_t cudaFuncSetCacheConfig(Kernel*, Choice) {
    return cudaSuccess;
}
template <class Kernel, class Choice> cudaError_t cudaFuncSetSharedMemConfig(Kernel*, Choice) {
    return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel* kernel, int threads,
                                                          size_t dynamic_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, flash::simt::address_of(kernel),
                                                         threads, dynamic_bytes);
}

/// The block that fills an SM best: `bytes_of(threads)` is its dynamic shared memory.
template <class Kernel, class BytesOf>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel* kernel,
                                                           BytesOf bytes_of, int most = 0) {
    using namespace flash::simt;
    int best = 0;
    *block = 0;
    *grid = 0;
    for (int threads = most > 0 ? std::min(most, 1024) : 1024; threads > 0; threads -= 32) {
        const int blocks = blocks_on_sm(address_of(kernel), threads, bytes_of(threads));
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * sms;
        }
    }
    return noted(best == 0 ? cudaErrorInvalidConfiguration : cudaSuccess);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel* kernel,
                                               size_t dynamic_bytes = 0, int most = 0) {
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
        grid, block, kernel, [=](int) { return dynamic_bytes; }, most);
}
