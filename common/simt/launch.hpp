// Starting a kernel on the CPU: the twin of common/cuda/launch.hpp.
#pragma once

#include <cstddef>
#include <tuple>

#include "common/simt/dim3.hpp"
#include "common/simt/site.hpp"

namespace flash {
namespace simt {

/// A launch with its kernel's type erased: `call(context)` runs the kernel once, as the current CUDA thread.
struct Launch {
    const void* kernel; // its address, for its name
    dim3 grid, block;
    size_t smem_bytes; // dynamic shared memory
    Site site;
    void (*call)(const void* context);
    const void* context;
    size_t context_bytes;
};

/// Runs all blocks and returns when they have ended. Throws Fault when the launch or the kernel is wrong.
void run(const Launch& launch);

/// The current block's dynamic shared memory.
void* dynamic_shared_memory();

} // namespace simt

/// Grid of a launch, with the place in the source that asked for it: converting a dim3 records where that happens.
struct Grid {
    dim3 size;
    simt::Site where;
    Grid(dim3 blocks, simt::Site place = simt::Site::here()) : size(blocks), where(place) {}
    Grid(unsigned blocks, simt::Site place = simt::Site::here()) : size(blocks), where(place) {}
};

/// kernel<<<grid, block, smem_bytes>>>(arguments...)
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t smem_bytes, Arguments... arguments) {
    struct Call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> arguments;
    };
    const Call call{kernel, std::tuple<Parameters...>(arguments...)};
    simt::run({reinterpret_cast<const void*>(kernel), grid.size, block, smem_bytes, grid.where,
               [](const void* context) {
                   const Call& own = *static_cast<const Call*>(context);
                   std::apply(own.kernel, own.arguments);
               },
               &call, sizeof call});
}

/// How many blocks that ask for `smem_bytes` of dynamic shared memory would fit an SM of the GPU that is emulated: one
/// on which a block may have what FLASH_SIMT_SHARED_KIB says. Here each core runs one block.
int blocks_per_sm(size_t smem_bytes);

/// The block's dynamic shared memory: `smem_bytes` of the launch, aligned to 1024 bytes, not initialised.
template <class T> T* dynamic_shared() { return static_cast<T*>(simt::dynamic_shared_memory()); }

} // namespace flash
