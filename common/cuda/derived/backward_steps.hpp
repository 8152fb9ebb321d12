// The way of a block along the queries that `backward_late_dq` derives, for the rungs after it.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/tile_order.hpp"

namespace flash {

/// Where a block that owns keys from j0 on walks: along the tiles of Q that see one of them, Br
/// rows each, and at each tile through the heads of its group. Blocks of the same heads are then
/// near the same queries at the same time.
struct Steps {
    int kv_head, head, j0; // of K and V; the first one of Q; the block's first key
    int first, last;       // the first query of the first and of the last such tile

    /// The block owns tile K of Bc keys. A task has group, N_q, N_kv and causal.
    template <class Task>
    __device__ Steps(Tile K, int Bc, int Br, const Task& task)
        : kv_head(K.head), head(K.head * task.group), j0(K.i * Bc) {
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
        // tile to begin with.
        first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Br * Br : 0;
        last = (task.N_q - 1) / Br * Br;
    }
};

} // namespace flash
