// The fixed maximum that the rung fixed_maximum derives, for those after it: its window, and how m
// is raised and a tile mended.
#pragma once

#include <cfloat>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/types.hpp"

namespace flash {

/// Weights should be below 2^window, and are 2^top_weight for the largest score when m is raised:
/// scores may rise by 16 powers of two in fp16, and by 80 in bf16. A tile's sum of `limit` tells
/// that a weight was too large. In the first tile, a score `far_below` m (2.5 such rises below its
/// row's largest) tells that later ones will be.
constexpr float window = 16;
template <class T> constexpr bool is_fp16 = dtype_of<T> == DType::fp16;
template <class T> constexpr float top_weight = is_fp16<T> ? 0 : -64; // in log2
template <class T> constexpr float limit = is_fp16<T> ? 65504 : 0x1p22f;
// as large as an element of P can be
template <class T> constexpr float most = is_fp16<T> ? 65504 : FLT_MAX;
template <class T> constexpr float far_below = is_fp16<T> ? -56 : -280;

/// Where a tile is mended, O and l of a row that keeps less than this are dropped: they may be
/// infinite. Before, N keys summed up to less than N 2^window; now one key alone weighs
/// 2^top_weight. So less than N 2^(80 - 122) of the sum is lost, 2^-11 of it with 2^31 keys.
constexpr float negligible = 0x1p-122f;

/// The weight of s, a score less m. If m was raised since, `shift` is less than 0: by how many
/// powers of two it rose.
template <class T> __device__ inline float weight(float s, float scale_log2, float shift = 0) {
    return fast_exp2(fmaf(s, scale_log2, window + shift));
}

/// Raises m of each row whose largest weight is above 2^top_weight (of every row in the first tile)
/// to make it that. O and l follow. `mend`: they have this tile's weights, as far as they did fit,
/// and S becomes what they lack. Otherwise S stays, unlike in `fixed_maximum`, and `shift` is to be
/// added to its exponents: 4 additions per lane, and not 64.
template <bool mend, class T, int M, int S_columns, int O_columns>
__device__ inline void
raise_maximum(float (&S_reg)[M][S_columns][4], float (&shift)[M][2], float (&m_reg)[M][2],
              float (&l_reg)[M][4], float (&O_reg)[M][O_columns][4], float scale_log2, bool first) {
    const float room = (window - top_weight<T>) / scale_log2; // scores, from such a weight up to m
// rows g and g + 8 of each m16 tile: elements c and c + 1 of C
#pragma unroll
    for (int row = 0; row < 2 * M; ++row) {
        const int i = row / 2, c = row % 2 * 2;
        float top = S_reg[i][0][c];
#pragma unroll
        for (int n = 0; n < S_columns; ++n) {
            top = fmaxf(top, fmaxf(S_reg[i][n][c], S_reg[i][n][c + 1]));
        }
        top = row_max(top); // of a row that sees no key: -inf, and m stays 0
        const float rise = top >= (first ? -FLT_MAX : -room) ? top + room : 0.0f;
        // m may fall in the first tile: O = l = 0
        float keep = fast_exp2(fminf(-rise * scale_log2, 0.0f));
        keep = mend && keep < negligible ? 0.0f : keep;
        m_reg[i][row % 2] += rise;
        shift[i][row % 2] = -rise * scale_log2;
        l_reg[i][c] = mend && keep == 0 ? 0.0f : l_reg[i][c] * keep; // not infinity times 0
        if (mend) {
#pragma unroll
            for (int n = 0; n < S_columns; ++n) {
                for (int e = c; e < c + 2; ++e) {
                    const float had = keep * fminf(weight<T>(S_reg[i][n][e], scale_log2), most<T>);
                    S_reg[i][n][e] = weight<T>(S_reg[i][n][e] - rise, scale_log2) - had;
                }
            }
        }
#pragma unroll
        for (int n = 0; n < O_columns; ++n) {
            O_reg[i][n][c] = mend && keep == 0 ? 0.0f : O_reg[i][n][c] * keep;
            O_reg[i][n][c + 1] = mend && keep == 0 ? 0.0f : O_reg[i][n][c + 1] * keep;
        }
    }
}

} // namespace flash
