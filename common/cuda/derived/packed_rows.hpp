// The packed rows that `packed_heads` derives, for the rungs after it: the queries of the heads
// that share a K/V head, as rows of one product.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/cuda/cuda.hpp"

namespace flash {

/// Which head and query of its group a packed row is, and where it lies: row 0 is that of the
/// group's first head. The heads of a group are neighbours in Q, O and LSE.
struct PackedRows {
    int group, N_q;
    __device__ int query(int row) const { return row / group; }
    __device__ int64_t place(int row) const { return int64_t{row % group} * N_q + row / group; }
};

/// The mask for rows that do not see 8 keys more 8 rows further down: the lane's rows g and g + 8
/// see the first visible[0] and visible[1] columns, and none sees more than `exist`.
template <int fragments>
__device__ void mask(float (&S)[fragments][4], int exist, const int (&visible)[2]) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 >= min(exist, visible[c / 2])) {
                S[n][c] = -INFINITY;
            }
        }
    }
}

} // namespace flash
