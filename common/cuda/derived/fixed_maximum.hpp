// The fixed maximum that `fixed_maximum` derives, for the rungs after it: its window, how m is
// raised, and how scores become weights.
#pragma once

#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/types.hpp"

namespace flash {

/// Weights should be below 2^window. When m is raised, a row's largest becomes 2^top_weight, so
/// scores may rise by 16 powers of two in fp16 before a tile has to be repaired, and by 80 in bf16,
/// which has the exponents of fp32: from 40 below 1, where small V needs some, to 40 above, where
/// large V does.
template <class T> constexpr float window = dtype_of<T> == DType::fp16 ? 16 : 40;
template <class T> constexpr float top_weight = dtype_of<T> == DType::fp16 ? 0 : -40;

/// A weight that does not fit fp16 counts as 65504. So a row of P that sums up to less has none,
/// and in bf16 none beyond the window.
template <class T> constexpr float limit = dtype_of<T> == DType::fp16 ? 65504 : 0x1p40f;

/// Where m rises so far that a row keeps less than this, O and l are dropped: they may be infinite.
/// N keys summed up to less than N 2^window, and now one key weighs 2^top_weight. So less than
/// N 2^(40 + 40 - 112) of the sum is lost, 2^-11 of it with 2^21 keys.
constexpr float negligible = 0x1p-112f;

/// Raises m of each row whose largest weight is above 2^top_weight (of every row in the first tile)
/// to make it that. S, O, l follow.
template <class T, int M, int columns, int fragments>
__device__ inline void raise_maximum(float (&S_reg)[M][columns][4], float (&m_reg)[M][2],
                                     float (&l_reg)[M][4], float (&O_reg)[M][fragments][4],
                                     float scale_log2, bool first) {
    // scores from such a weight up to m, or so many as leave m finite, where the scale is 1e-37
    const float room = fminf((window<T> - top_weight<T>) / scale_log2, 0x1p126f);
    // a row that sees no key has top = -inf, and keeps m = 0
    const float lowest = first ? -FLT_MAX : -room;
// rows g and g + 8 of each m16 tile: elements c and c + 1 of C
#pragma unroll
    for (int row = 0; row < 2 * M; ++row) {
        const int i = row / 2;
        const int c = row % 2 * 2;
        float top = S_reg[i][0][c];
#pragma unroll
        for (int n = 0; n < columns; ++n) {
            top = fmaxf(top, fmaxf(S_reg[i][n][c], S_reg[i][n][c + 1]));
        }
        top = row_max(top);
        const bool raise = top >= lowest;
        const float m_old = m_reg[i][row % 2];
        m_reg[i][row % 2] += raise ? top + room : 0.0f;
        // As m has risen, rounded: beside scores of 1e9 `room` is lost. The largest S must end at
        // -room to 0 all the same.
        const float risen = m_reg[i][row % 2] - m_old;
        const float rise = raise ? fminf(fmaxf(risen, top), top + room) : 0.0f;
        // m may fall in the first tile: O = l = 0
        const float keep = fast_exp2(fminf(-rise * scale_log2, 0.0f));
        const bool drop = keep < negligible; // infinity or NaN times 0 is not 0
        l_reg[i][c] = drop ? 0.0f : l_reg[i][c] * keep;
#pragma unroll
        for (int n = 0; n < columns; ++n) {
            S_reg[i][n][c] -= rise;
            S_reg[i][n][c + 1] -= rise;
        }
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            O_reg[i][n][c] = drop ? 0.0f : O_reg[i][n][c] * keep;
            O_reg[i][n][c + 1] = drop ? 0.0f : O_reg[i][n][c + 1] * keep;
        }
    }
}

/// S becomes P: the weight of each score less m. Where `sign` is -1, the weights are negative.
template <class T, int sign = 1, int M, int columns>
__device__ inline void exponentials(float (&S_reg)[M][columns][4], float scale_log2) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                const float exponent = fmaf(S_reg[i][n][c], scale_log2, window<T>);
                S_reg[i][n][c] = sign * fast_exp2(exponent);
            }
        }
    }
}

} // namespace flash
