// The writer of `backward_late_dq`, for the rungs after it: tiles of dQ on their way from the
// consumers into the sum.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/tma.hpp"

namespace flash::backward {

/// A tile of dQ on its way from the consumers to the writer: fragment by fragment, as it lies in
/// dQ_sum.
template <class Tiles> struct Outbox {
    alignas(16) float tile[Tiles::Br * Tiles::d];
    uint64_t full, empty;

    /// One thread calls it, before a fence_mbarrier_init() and a __syncthreads().
    __device__ void init() {
        mbarrier_init(&full, 4); // one arrival per warp of the warpgroup whose turn it is
        mbarrier_init(&empty, 1);
    }

    /// Waits until TMA has read the tile before this one. `before`: how many there were.
    __device__ void wait_empty(int before) { mbarrier_wait(&empty, before % 2 ^ 1); }

    /// All lanes call it when the warp has stored its part of the tile.
    __device__ void arrive_full(int /*before*/) { mbarrier_arrive_warp(&full); }
};

template <class Tiles> struct LateShared : Shared<Tiles> { Outbox<Tiles> dQ; };

/// The writer's part: one thread. It adds the block's tiles of dQ.
template <class Tiles, class RungTask>
__device__ inline void add_dQ(const RungTask& task, const Steps& steps, Outbox<Tiles>& out) {
    int step = 0;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, ++step) {
            const int64_t row = int64_t{head} * task.padded + i0;
            mbarrier_wait(&out.full, step % 2); // four warps have stored it,
            fence_proxy_async();                // and TMA sees it
            bulk_reduce_add(task.dQ_sum + row * Tiles::d, out.tile, sizeof(out.tile));
            bulk_commit();
            // TMA has read the tile: warps may store the next one, and the block may end
            bulk_wait_read<0>();
            mbarrier_arrive(&out.empty);
        }
    }
}

} // namespace flash::backward
