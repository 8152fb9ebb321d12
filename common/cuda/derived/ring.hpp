// The ring that `warp_specialization` makes of `multistage`'s slots, for the rungs after it: slots
// in shared memory that one side fills and the other reads.
//
//                  full[slot]: landed               empty[slot]: read by all
//      producer    ------------------> consumers    ------------------------> producer, next round
//
// Each slot's barriers end one phase each time that the slot comes round, so both sides flip the
// parity they wait for when they return to slot 0.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/mbarrier.hpp"

namespace flash {

/// n slots of `bytes` bytes, with two barriers each. It lives in shared memory.
template <int n, int bytes> struct Ring {
    alignas(1024) char tile[n][bytes];
    uint64_t full[n], empty[n];

    /// `readers` arrivals empty a slot. One thread calls it, before a fence_mbarrier_init() and a
    /// __syncthreads().
    __device__ void init(int readers) {
        for (int slot = 0; slot < n; ++slot) {
            mbarrier_init(&full[slot], 1);
            mbarrier_init(&empty[slot], readers);
        }
    }
};

/// How far a thread has come in a ring of n slots.
template <int n> struct RingPlace {
    int slot = 0;
    // parity of `full` in this slot; `empty` is one behind, so that a producer's first waits fall
    // through
    int phase = 0;
    __device__ void next() {
        slot = (slot + 1) % n;
        phase ^= slot == 0;
    }
};

} // namespace flash
