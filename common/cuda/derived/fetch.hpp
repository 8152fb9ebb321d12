// The producer's part that `warp_specialization` derives, for the rungs after it.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/tma.hpp"

namespace flash {

/// The producer's part in a tile of Q. One thread asks for every consumer's rows of Q, and then for
/// tiles of K and V in turn, from key `begin` on. `at` is where it goes on in their rings.
template <class Tiles, class Q_tiles, class K_ring, class V_ring>
__device__ inline void fetch(const Task& task, Tile tile, Q_tiles& Q_smem, uint64_t* Q_full,
                             K_ring& K, V_ring& V, typename K_ring::Place& at, int begin = 0) {
    const int i0 = tile.i * Tiles::Br;
    const int KV_head = tile.head / task.group;
    const int keys = visible_keys(task, i0, i0 + Tiles::Br); // tiles beyond them are never loaded
    mbarrier_expect_tx(Q_full, sizeof(Q_smem));
    for (int w = 0; w < Tiles::consumers; ++w) {
        const int first = i0 + w * Tiles::Q::rows;
        tma_load<4>(Q_smem[w].data, task.Q, {0, first, 0, tile.head}, Q_full);
    }
    for (int j0 = begin; j0 < keys; j0 += Tiles::Bc) {
        uint64_t* const K_full = &K.full[at.stage];
        uint64_t* const V_full = &V.full[at.stage];
        K.acquire(at); // all warps have read the tile of K before
        mbarrier_expect_tx(K_full, K.tile[at.stage].bytes);
        tma_load<4>(K.tile[at.stage].data, task.K, {0, j0, 0, KV_head}, K_full);
        V.acquire(at); // all warps have read the tile of V before
        mbarrier_expect_tx(V_full, V.tile[at.stage].bytes);
        tma_load<4>(V.tile[at.stage].data, task.V, {0, j0, 0, KV_head}, V_full);
        at.next();
    }
}

} // namespace flash
