// The way out that `wgmma_tma` derives, for the rungs after it: sums leave by TMA, through shared
// memory.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"

namespace flash {

/// Stores a warpgroup's C fragments, rounded to T, as the tile of the tensor that begins at `at`.
/// Rows beyond the tensor are not written. `smem` has room for the tile, and nobody reads what was
/// there. `row` is the lane's first row in the tile, and `barrier` a named barrier of the
/// warpgroup's own. The whole warpgroup calls it; when its first thread returns, the tile has been
/// read, so that its place is free and the block may leave.
template <class T, class Tile, int rank, int fragments>
__device__ inline void store_tile(const TensorMap& map, const int (&at)[rank], char* smem, int row,
                                  const float (&C)[fragments][4], int barrier) {
    store_C<T, Tile>(smem, row, C);
    fence_proxy_async();              // TMA sees what this thread has written,
    named_barrier_sync(barrier, 128); // and what the warpgroup's others have
    if (threadIdx.x % 128 == 0) {
        tma_store<rank>(map, at, smem);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

} // namespace flash
