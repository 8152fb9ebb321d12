// Semaphores in global memory, by which blocks of one kernel wait for each other: counters that
// only grow. (PTX ISA, "Memory Consistency Model": release and acquire; "ld", "red".)
//
// A block may wait only for blocks that have surely begun. Nobody promises in which order a GPU
// starts blocks, and those that have begun keep their places until they end: if all of them wait
// for one that has no place yet, they wait for ever. Blocks that number themselves as they begin
// (atomicAdd on a counter) and wait for lower numbers alone are safe.
#pragma once

#ifdef __NVCC__

namespace flash {

/// Waits until `semaphore` is at least `value`. What those threads did before they added is then
/// done, and what this thread does next, by TMA as well, comes after it.
__device__ __forceinline__ void semaphore_wait(const unsigned* semaphore, unsigned value) {
    unsigned now = 0;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(semaphore) : "memory");
    } while (now < value);
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/// Adds 1, after all that this thread has read and written. Of TMA's stores and additions these are
/// the ones that it has waited for by bulk_wait (not bulk_wait_read).
__device__ __forceinline__ void semaphore_add(unsigned* semaphore) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(semaphore) : "memory");
}

} // namespace flash

#else
#include "common/simt/instructions/semaphore.hpp"
#endif
