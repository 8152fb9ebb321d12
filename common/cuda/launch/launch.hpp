// Starting a kernel on a GPU, and the shared memory it asks for. nvcc only; common/simt has the
// twin for the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "common/cuda/launch/stream.hpp"

namespace flash {

/// Grid of a launch, with the place in the source that asked for it: converting a dim3 records
/// where that happens.
struct Grid {
    dim3 size;
    std::source_location where;
    Grid(dim3 blocks, std::source_location place = std::source_location::current())
        : size(blocks), where(place) {}
    Grid(unsigned blocks, std::source_location place = std::source_location::current())
        : size(blocks), where(place) {}
};

/// Throws Error when the device cannot run `kernel` like this: a grid or block that is empty or too
/// large, more threads than the kernel's registers allow, or more shared memory than a block can
/// have. Raises the kernel's limit on dynamic shared memory, which CUDA leaves at 48 KiB until
/// asked.
void prepare_launch(const void* kernel, const Grid& grid, dim3 block, size_t smem_bytes);

/// Throws Error when the launch just made was refused.
void check_launch(const void* kernel, const Grid& grid, dim3 block, size_t smem_bytes);

/// kernel<<<grid, block, smem_bytes>>>(arguments...) on the thread's current stream, checked before
/// and after, in release builds too, because a launch that was refused looks like a very fast
/// kernel. Does not wait for the kernel to end.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t smem_bytes,
            Arguments... arguments) {
    const auto address = reinterpret_cast<const void*>(kernel);
    prepare_launch(address, grid, block, smem_bytes);
    kernel<<<grid.size, block, smem_bytes, current_stream>>>(arguments...);
    check_launch(address, grid, block, smem_bytes);
}

/// The most shared memory that the GPU gives one block, in bytes.
size_t max_shared_memory_per_block();

/// How many SMs the GPU has.
int multiprocessors();

/// How many blocks of a launch the GPU runs at the same time: on each SM as many as its registers,
/// threads and shared memory allow. Throws Error when not even one fits.
int resident_blocks(const void* kernel, int threads, size_t smem_bytes);
template <class... Parameters>
int resident_blocks(void (*kernel)(Parameters...), int threads, size_t smem_bytes) {
    return resident_blocks(reinterpret_cast<const void*>(kernel), threads, smem_bytes);
}

void clear_bytes(void* memory, size_t bytes);

/// Sets `size` numbers in device memory to zero, on the thread's current stream: after the work
/// that was started there before, and before the work that is started there later.
template <class T> void clear(T* numbers, int64_t size) {
    clear_bytes(numbers, static_cast<size_t>(size) * sizeof(T));
}

/// The block's dynamic shared memory: `smem_bytes` of the launch, aligned to 1024 bytes, not
/// initialised.
template <class T> __device__ T* dynamic_shared() {
    extern __shared__ __align__(1024) unsigned char flash_dynamic_shared[];
    return reinterpret_cast<T*>(flash_dynamic_shared);
}

} // namespace flash
