// The ring that `warp_specialization` makes of `multistage`'s stages, for the rungs after it:
// stages in shared memory that one side fills and the other reads.
//
//                  full: the tile has landed        empty: all have read it
//      producer    ------------------> consumers    -----------------------> producer, next round
//      acquire()                       wait(), release()
//
// Each time that a stage comes round, its barriers end one phase. So both sides flip the parity
// that they wait for when they return to stage 0.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/mbarrier.hpp"

namespace flash {

/// How far a thread has come in a ring.
template <int stages> struct RingPlace {
    int stage = 0;
    int phase = 0; // the parity of `full` in this stage
    __device__ void next() {
        stage = (stage + 1u) % stages; // unsigned: of a power of 2 that is one AND
        if (stage == 0) {
            phase ^= 1; // once round: the barriers of stage 0 are in their next phase
        }
    }
};

/// Stages with room for a Tile, and two barriers each. It lives in shared memory.
template <int stages, class Tile> struct Ring {
    using Place = RingPlace<stages>;
    alignas(1024) Tile tile[stages];
    uint64_t full[stages], empty[stages];

    /// `readers` arrivals empty a stage, `writers` fill it. One thread calls it, before a
    /// fence_mbarrier_init() and a __syncthreads().
    __device__ void init(int readers, int writers = 1) {
        for (int stage = 0; stage < stages; ++stage) {
            mbarrier_init(&full[stage], writers);
            mbarrier_init(&empty[stage], readers);
        }
    }

    /// The producer waits until all readers have released the stage. `empty` is one phase behind
    /// `full`, so in the first round it waits for the phase before the first, and goes on at once.
    __device__ void acquire(Place at, SourceLocation location = SourceLocation::here()) {
        mbarrier_wait(&empty[at.stage], at.phase ^ 1, location);
    }
    /// A consumer waits until the stage's tile has landed.
    __device__ void wait(Place at, SourceLocation location = SourceLocation::here()) {
        mbarrier_wait(&full[at.stage], at.phase, location);
    }
    /// A whole warp of a producer that writes the tile itself has done so: one arrival.
    __device__ void commit(Place at, SourceLocation location = SourceLocation::here()) {
        mbarrier_arrive_warp(&full[at.stage], location);
    }
    /// A whole warp of a consumer has read the tile: one arrival.
    __device__ void release(Place at, SourceLocation location = SourceLocation::here()) {
        mbarrier_arrive_warp(&empty[at.stage], location);
    }
};

} // namespace flash
