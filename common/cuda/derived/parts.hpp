// What `split_kv` derives, for the rung after it: the step of a warp that has a ring of its own,
// and parts, which are results for some of the keys, and their merge.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/packed_rows.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace flash::split {

inline constexpr int warps = 4;
inline constexpr int threads = 32 * warps;
inline constexpr int Br = 16;           // packed rows, the same for all warps
inline constexpr int Bc = 16;           // keys in a warp's step
inline constexpr int slots = 3;         // in a warp's ring, each for a step
inline constexpr int ahead = slots - 1; // steps: so far in advance keys are copied
// So few that an SM has 64 KiB on their way. More would only make more parts to merge.
template <int d> constexpr int blocks_per_sm = 128 / d;

/// The result for some of the keys: O, divided by its sum of weights, and LSE in units of log2. A
/// row that sees none of these keys has O = 0 and LSE = -inf.
template <int d> struct Part {
    float O[Br][d + 8]; // 8 more, so that rows of a C fragment lie in different banks
    float LSE[Br];
};

template <int d> struct Slot { SwizzledTile<d, Bc> K, V; };

/// Dynamic shared memory: first the rings of all warps, later what is merged, in the same place.
template <int d> union Shared {
    Slot<d> ring[warps][slots];
    struct {
        Part<d> of_warp[warps];
        bool is_last;
    } merge;
};

/// Starts the warp's copies of 16 keys. Rows from `valid` on become zeros.
template <class T, int d>
__device__ inline void start_step(SwizzledTile<d, Bc>& tile, const T* from, int64_t row_stride,
                                  int valid) {
    constexpr int step = 32 / (d / 8); // rows that the warp copies at once
    const int row = threadIdx.x % 32 / (d / 8);
    const int chunk = threadIdx.x % (d / 8);
#pragma unroll
    for (int r = row; r < row + Bc; r += step) {
        cp_async_16(tile.data + tile.offset(r, chunk), from + r * row_stride + 8 * chunk,
                    r < valid);
    }
}

/// Reads the tile's rows of Q as A fragments: 16 rows x 16 columns each. Rows from `rows` on are 0.
template <class T, int d>
__device__ inline void load_Q(uint32_t (&Q_reg)[d / 16][4], const T* Q, PackedRows packed,
                              int first, int rows) {
    const int g = threadIdx.x % 32 / 4; // the lane's rows in a fragment: g and g + 8
    const int t = threadIdx.x % 4;      // its columns: 2t and 2t + 1, and 8 more
    for (int r = 0; r < 2; ++r) {
        const T* row = Q + packed.place(first + g + 8 * r) * d + 2 * t;
#pragma unroll
        for (int k = 0; k < d / 8; ++k) {
            Q_reg[k / 2][k % 2 * 2 + r] =
                g + 8 * r < rows ? *reinterpret_cast<const uint32_t*>(row + 8 * k) : 0;
        }
    }
}

/// S_reg = Q K^T - m: 16 rows and the step's keys. C fragments, 16 rows x 8 keys each.
template <class T, int d>
__device__ inline void multiply_QK(float (&S_reg)[1][Bc / 8][4], const float (&m_reg)[1][2],
                                   const uint32_t (&Q_reg)[d / 16][4],
                                   const SwizzledTile<d, Bc>& K) {
    const int K_lane = K.offset_of_B(threadIdx.x % 32);
    for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[0][n][c] = -m_reg[0][c / 2];
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t K_reg[4];
        ldmatrix_x4(K_reg, K.data + K.fragment(K_lane, 0, k));
        mma_m16n8k16<T>(S_reg[0][0], Q_reg[k], {K_reg[0], K_reg[1]});
        mma_m16n8k16<T>(S_reg[0][1], Q_reg[k], {K_reg[2], K_reg[3]});
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, int d>
__device__ inline void multiply_PV(float (&O_reg)[1][d / 8][4], float (&l_reg)[1][4],
                                   const float (&P)[1][Bc / 8][4], const SwizzledTile<d, Bc>& V) {
    const int V_lane = V.offset_of_B_transposed(threadIdx.x % 32);
    uint32_t P_reg[4]; // an A fragment: 16 rows x 16 keys
    pack_A_saturated<T>(P_reg, P[0][0], P[0][1]);
    mma_m16n8k16<T>(l_reg[0], P_reg, {ones<T>, ones<T>});
#pragma unroll
    for (int n = 0; n < d / 8; n += 2) {
        uint32_t V_reg[4];
        ldmatrix_x4_trans(V_reg, V.data + V.fragment(V_lane, 0, n / 2));
        mma_m16n8k16<T>(O_reg[0][n], P_reg, {V_reg[0], V_reg[1]});
        mma_m16n8k16<T>(O_reg[0][n + 1], P_reg, {V_reg[2], V_reg[3]});
    }
}

/// The warp's own result, from registers: the rows that exist.
template <class T, int d>
__device__ inline void store_part(Part<d>& part, const float (&O_reg)[1][d / 8][4],
                                  const float (&m_reg)[1][2], const float (&l_reg)[1][4],
                                  float scale_log2, int rows) {
    const int g = threadIdx.x % 32 / 4; // rows g and g + 8 of C
    const int t = threadIdx.x % 4;      // columns 2t and 2t + 1
    for (int r = 0; r < 2; ++r) {
        if (g + 8 * r >= rows) { // nobody merges them
            return;
        }
        const float l = l_reg[0][2 * r];
        const float normalise = l == 0 ? 0.0f : 1 / l;
        float* const O = part.O[g + 8 * r] + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            *reinterpret_cast<float2*>(O + 8 * n) =
                make_float2(O_reg[0][n][2 * r] * normalise, O_reg[0][n][2 * r + 1] * normalise);
        }
        if (t == 0) {
            part.LSE[g + 8 * r] = m_reg[0][r] * scale_log2 - window<T> + log2f(l);
        }
    }
}

/// The result for some of the keys, of 4 columns of a row.
struct Merged {
    float4 O;
    float LSE; // of the row, in units of log2
};

/// Merges `count` parts: columns x to x + 3 of a row. The parts may be in shared or in global
/// memory.
template <int d> __device__ inline Merged merge(const Part<d>* parts, int count, int row, int x) {
    float top = -FLT_MAX; // the largest LSE so far. Not -inf, because -inf - -inf is NaN
    float sum = 0;        // of the weights 2^(LSE - top)
    float4 O = make_float4(0, 0, 0, 0);
#pragma unroll 16
    for (int n = 0; n < count; ++n) { // as one_pass_softmax takes keys
        const float4 O_n = *reinterpret_cast<const float4*>(parts[n].O[row] + x);
        const float LSE = parts[n].LSE[row];
        const float rescale = fast_exp2(top - fmaxf(top, LSE));
        top = fmaxf(top, LSE);
        const float weight = fast_exp2(LSE - top);
        sum = fmaf(sum, rescale, weight);
        O.x = fmaf(O.x, rescale, weight * O_n.x);
        O.y = fmaf(O.y, rescale, weight * O_n.y);
        O.z = fmaf(O.z, rescale, weight * O_n.z);
        O.w = fmaf(O.w, rescale, weight * O_n.w);
    }
    const float normalise = sum == 0 ? 0.0f : 1 / sum;
    O = make_float4(O.x * normalise, O.y * normalise, O.z * normalise, O.w * normalise);
    return {O, top + log2f(sum)};
}

} // namespace flash::split
