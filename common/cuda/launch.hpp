// Starting a kernel on a GPU, and the shared memory it asks for. nvcc only; common/simt has the twin for the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <source_location>

namespace flash {

/// Grid of a launch, with the place in the source that asked for it: converting a dim3 records where that happens.
struct Grid {
    dim3 size;
    std::source_location where;
    Grid(dim3 blocks, std::source_location place = std::source_location::current()) : size(blocks), where(place) {}
    Grid(unsigned blocks, std::source_location place = std::source_location::current()) : size(blocks), where(place) {}
};

/// Throws Error when the device cannot run `kernel` so: a zero or too large grid or block, more threads than the
/// kernel's registers allow, more shared memory than a block can have. Raises the kernel's limit on dynamic shared
/// memory, which CUDA leaves at 48 KiB until asked.
void prepare_launch(const void* kernel, const Grid& grid, dim3 block, size_t smem_bytes);

/// Throws Error when the launch just made was refused.
void check_launch(const void* kernel, const Grid& grid, dim3 block, size_t smem_bytes);

/// kernel<<<grid, block, smem_bytes>>>(arguments...), checked before and after, in release builds too: a launch that
/// was refused and not checked looks like a very fast kernel. Does not wait for the kernel to end.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t smem_bytes, Arguments... arguments) {
    const auto address = reinterpret_cast<const void*>(kernel);
    prepare_launch(address, grid, block, smem_bytes);
    kernel<<<grid.size, block, smem_bytes>>>(arguments...);
    check_launch(address, grid, block, smem_bytes);
}

/// How many blocks that ask for `smem_bytes` of dynamic shared memory fit an SM, as far as shared memory goes.
/// (Registers and threads may allow fewer.) A launcher that has tiles of several sizes chooses by it.
int blocks_per_sm(size_t smem_bytes);

/// The block's dynamic shared memory: `smem_bytes` of the launch, aligned to 1024 bytes, not initialised.
template <class T> __device__ T* dynamic_shared() {
    extern __shared__ __align__(1024) unsigned char flash_dynamic_shared[];
    return reinterpret_cast<T*>(flash_dynamic_shared);
}

} // namespace flash
