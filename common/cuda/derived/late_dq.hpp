// How `backward_late_dq` hands dS and dQ over, for the rungs after it.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/tma.hpp"

namespace flash::backward {

/// A tile of dQ on its way from the consumers to the writer, in the order in which it lies in
/// dQ_sum: element by element of the fragments.
template <class Tiles> struct Outbox {
    alignas(16) float tile[Tiles::Br * Tiles::d];
    uint64_t full, empty;

    /// One thread calls it, before a fence_mbarrier_init() and a __syncthreads().
    __device__ void init() {
        mbarrier_init(&full, Tiles::consumers * warpgroup);
        mbarrier_init(&empty, 1);
    }
};

/// The barrier at which a consumer says that its half of dS of a step is written. The next step has
/// another one.
__device__ inline int dS_written(int role, int step) { return 1 + 2 * (step % 2) + role; }

/// Puts the warp's 16 x 64 of dQ where the writer finds them. `tile` is how many tiles the block
/// has handed over before.
template <class Tiles>
__device__ void hand_over(Outbox<Tiles>& out, const Place<Tiles>& place,
                          const float (&dQ_reg)[8][4], int tile) {
    float* own = out.tile + place.own_dQ() + threadIdx.x % 32;
    mbarrier_wait(&out.empty, tile % 2 ^ 1); // TMA has read the tile before
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        for (int e = 0; e < 4; ++e) {
            own[128 * n + 32 * e] = dQ_reg[n][e];
        }
    }
    fence_proxy_async(); // TMA sees what this thread has written
    mbarrier_arrive(&out.full);
}

} // namespace flash::backward
