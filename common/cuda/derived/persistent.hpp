// What `persistent_blocks` derives, for the rung after it: a block's shared memory, and the
// producer that draws one tile of Q after the other.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fetch.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"

namespace flash {

template <class Tiles, class K_tile = typename Tiles::KV, class V_tile = K_tile>
struct PersistentShared {
    using Q_tiles = typename Tiles::Q[Tiles::consumers];
    Ring<Tiles::Q_stages, Q_tiles> Q;
    Ring<Tiles::stages, K_tile> K;
    Ring<Tiles::stages, V_tile> V;
    int number[Tiles::Q_stages]; // of the tile of Q in each stage
};

/// The first key that query i sees. A rung whose own kind of Task has another one is asked instead.
__device__ inline int first_key(const Task&, int /*i*/) { return 0; }

/// The producer, one thread: it draws tiles of Q from a counter and fetches what they need. A
/// number that no tile has tells the consumers that there are no more.
template <class RungTask, class Tiles, class K_tile, class V_tile>
__device__ inline void produce(const RungTask& task, unsigned* drawn,
                               PersistentShared<Tiles, K_tile, V_tile>& smem) {
    const int tiles = task.order.heads * task.order.Tr;
    RingPlace<Tiles::Q_stages> Q;
    RingPlace<Tiles::stages> KV;
    for (int number = blockIdx.x;; number = gridDim.x + atomicAdd(drawn, 1)) {
        smem.Q.acquire(Q); // O, in Q's place, has been stored, and the number before has been read
        smem.number[Q.stage] = number;
        if (number >= tiles) {
            mbarrier_arrive(&smem.Q.full[Q.stage]); // the consumers may read the number
            return;
        }
        const Tile tile = tile_of(number, task.order);
        fetch<Tiles>(task, tile, smem.Q.tile[Q.stage], &smem.Q.full[Q.stage], smem.K, smem.V, KV,
                     first_key(task, tile.i * Tiles::Br));
        Q.next();
    }
}

} // namespace flash
