// Semaphores in global memory, by which blocks of one kernel wait for each other or find out who is
// last: counters that only grow. (PTX ISA, "Memory Consistency Model": release and acquire; "ld",
// "red", "atom".)
//
// A block may wait only for blocks that have surely begun. Nobody promises in which order a GPU
// starts blocks, and those that have begun keep their places until they end. If all of them wait
// for one that has no place yet, they wait forever. Blocks are safe if they number themselves as
// they begin (atomicAdd on a counter) and wait only for lower numbers.
#pragma once

#ifdef __NVCC__

namespace flash {

/// Waits until `semaphore` is at least `value`. What other threads did before they added is then
/// done, and what this thread does next, also by TMA, comes after it.
__device__ __forceinline__ void semaphore_wait(const unsigned* semaphore, unsigned value) {
    unsigned now = 0;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(semaphore) : "memory");
    } while (now < value);
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/// Adds 1, after all that this thread has read and written. Stores and additions by TMA are among
/// it if the thread has waited for them with bulk_wait (bulk_wait_read is not enough).
__device__ __forceinline__ void semaphore_add(unsigned* semaphore) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(semaphore) : "memory");
}

/// Adds 1 and returns what was there before. What this thread has read and written comes before it;
/// what others did before they added comes before what this thread does next (not by TMA).
__device__ __forceinline__ unsigned semaphore_fetch_add(unsigned* semaphore) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(semaphore)
                 : "memory");
    return before;
}

} // namespace flash

#else
#include "common/simt/instructions/semaphore.hpp"
#endif
