// mbarrier: a barrier in shared memory at which arriving and waiting are separate, so that the
// threads that fill a buffer and the threads that read it need not meet. (PTX ISA, "mbarrier".)
//
// A barrier counts arrivals. When all that it expects have come, its phase ends and the next one
// begins: phase 0, 1, 2, ... A thread waits for the end of a phase by the phase's parity, 0 or 1. A
// new barrier is in phase 0, so a wait for parity 1 (the phase before) returns at once.
#pragma once

#include <cstdint>

#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/source_location.hpp"

#ifdef __NVCC__

namespace flash {

/// `arrivals` is how many arrivals end a phase. One thread calls it, before a __syncthreads().
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
                 "r"(arrivals)
                 : "memory");
}

/// One arrival. When the phase ends, all that the thread has read and written before is done.
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier, SourceLocation = {}) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
                 : "memory");
}

/// One arrival. The phase then also waits for `bytes` more bytes from the copies that name this
/// barrier (tma_load). If `bytes` is too small or too large, the phase never ends.
__device__ __forceinline__ void mbarrier_expect_tx(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
                 "r"(bytes)
                 : "memory");
}

/// Makes new barriers known to the copy engine, which is not a thread and waits at no
/// __syncthreads(). The thread that called mbarrier_init calls it afterwards.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// One arrival, which happens by itself once all cp.async copies that this thread has started are
/// complete.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint64_t* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
                 : "memory");
}

/// Waits for the end of the phase of this parity, 0 or 1.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, int parity, SourceLocation = {}) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
    uint32_t done = 0;
    do {
#if __CUDA_ARCH__ >= 900 // sleeps in the hardware for a while before it answers no
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 "
                     "%0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(address), "r"(parity)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 "
                     "%0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(address), "r"(parity)
                     : "memory");
#endif
    } while (done == 0);
}

} // namespace flash

#else
#include "common/simt/instructions/mbarrier.hpp"
#endif

namespace flash {

/// One arrival per warp, made by lane 0 for all 32, which call this together. What each of them has
/// waited for, read and written before, is done when the phase ends.
__device__ inline void mbarrier_arrive_warp(uint64_t* barrier,
                                            SourceLocation location = SourceLocation::here()) {
    // Each lane has passed its own waits before lane 0 speaks for it. A lane could lag otherwise,
    // until the phase after the one that it waits for has ended, too: then it finds the parity of
    // before, and waits for ever. The lanes' reads and writes are done as well.
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(barrier, location);
    }
}

} // namespace flash
