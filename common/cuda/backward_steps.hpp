// The way of a block along the queries that rung 26 derives, for the rungs after it.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/tile_order.hpp"

namespace flash {

/// The steps of a block that owns keys from j0 on: the tiles of Q, Br rows each, that see one of them; of every head of
/// the group, one head after the other.
struct BackwardSteps {
    int kv_head, j0;         // of K and V; the block's first key
    int first, tiles, count; // of each head, the first tile of Q and how many; of all heads, how many

    /// The block owns tile K of Bc keys. A task has group, N_q, N_kv and causal.
    template <class Task>
    __device__ BackwardSteps(Tile K, int Bc, int Br, const Task& task) : kv_head(K.head), j0(K.i * Bc) {
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a tile to begin with.
        first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Br : 0;
        tiles = (task.N_q + Br - 1) / Br - first;
        count = task.group * tiles;
    }
    __device__ int head(int step, int group) const { return kv_head * group + step / tiles; }
    __device__ int tile(int step) const { return first + step % tiles; }
    __device__ int after(int tile) const { return tile + 1 < first + tiles ? tile + 1 : first; } // without a division
};

} // namespace flash
