// flash::launch on an SM that has less shared memory than it could: scripts/measure_shared_memory puts it in the place
// of flash::launch in a rung's kernel file.
#pragma once

#include "common/cuda/error.hpp"
#include "common/cuda/launch.hpp"

/// The shared memory that an SM sets aside for the next launches, in KiB, and how many blocks of the last kernel fit.
extern "C" {
int limited_kib_an_sm = 0;
int limited_blocks_an_sm = 0;
}

namespace flash {

/// The rest of an SM's 256 KiB is its L1 cache then. CUDA takes the least of the sizes that the hardware has (on an
/// H200: 0, 8, 16, 32, 64, 100, 132, 164, 196, 228) that is no smaller than what was asked for.
template <class... Parameters, class... Arguments>
void limited_launch(void (*kernel)(Parameters...), unsigned grid, unsigned block, size_t smem_bytes,
                    Arguments... arguments) {
    int device = 0;
    int most = 0;
    FLASH_CHECK_CUDA(cudaGetDevice(&device));
    FLASH_CHECK_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
    const int percent = limited_kib_an_sm * 1024 * 100 / most; // rounded down, so that the next size up is this one
    FLASH_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent));
    FLASH_CHECK_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_bytes)));
    FLASH_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&limited_blocks_an_sm, kernel, block, smem_bytes));
    launch(kernel, Grid(grid), dim3(block), smem_bytes, arguments...);
}

} // namespace flash
