// Warpgroups that play different roles: barriers for some of a block's threads, and registers that
// move from one warpgroup to another. (PTX ISA, "bar", "setmaxnreg".)
#pragma once

#include "common/cuda/cuda.hpp"

#ifdef __NVCC__

namespace flash {

/// Waits until `threads` threads, a multiple of 32, have come to barrier `id`, by this call or by
/// named_barrier_arrive. `id` is 1 to 15, since 0 belongs to __syncthreads(). All lanes of a warp
/// call it together.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives at barrier `id` and goes on.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// From here on each thread of the warpgroup has `registers` registers, fewer than before. Other
/// warpgroups of the block can take the rest. `registers` is a multiple of 8, from 24 to 256. The
/// whole warpgroup calls it.
template <int registers> __device__ __forceinline__ void give_registers() {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/// From here on each thread of the warpgroup has `registers` registers, more than before. Waits
/// until others have given up enough: there are no more than those that the block was launched
/// with.
template <int registers> __device__ __forceinline__ void take_registers() {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

} // namespace flash

#else
#include "common/simt/instructions/warpgroup.hpp"
#endif

namespace flash {

/// The number of the thread's warpgroup. The shuffle tells the compiler that it is the same in all
/// lanes of a warp. Loop counts and descriptors that depend on it are then in uniform registers,
/// where wgmma reads them. All lanes of the warp call it together.
__device__ inline int warpgroup_of_thread() {
    return __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
}

} // namespace flash
