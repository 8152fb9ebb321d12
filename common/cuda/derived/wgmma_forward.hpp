// What `wgmma_tma` derives, for the forward rungs after it: the task of a launch, the softmax of a
// warpgroup's rows, and what is left to do when all keys are through.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"

namespace flash {

struct Task {
    TensorMap Q, K, V, O;
    float* LSE;
    TileOrder order;
    int group, N_q, N_kv; // group: query heads to one K/V head
    float scale_log2;
    bool causal;
};

/// How many keys query i sees: key j if j <= i + (N_kv - N_q). `of` has N_q, N_kv and causal: a
/// Task, or what a rung knows of a single sequence.
template <class Sizes> __device__ inline int visible_keys(const Sizes& of, int i) {
    return of.causal ? i + (of.N_kv - of.N_q) + 1 : of.N_kv;
}

/// How many keys some of the queries from i0 to i1 - 1 see. Queries beyond the last see none.
template <class Sizes> __device__ inline int visible_keys(const Sizes& of, int i0, int i1) {
    return i0 < of.N_q ? visible_keys(of, min(i1, of.N_q) - 1) : 0;
}

/// What a lane knows of its two rows of S and O, which are rows g and g + 8 of its warp's. A weight
/// is 2 to the power of (S - m) scale_log2.
struct Rows {
    float m[2] = {-FLT_MAX, -FLT_MAX}; // a score as Q K^T has it, not scaled
    float l[2] = {};                   // the lane's own part of the row sums
    // One multiply-add makes the exponent: S scale_log2 - offset, with m scale_log2 as the offset.
    float offset[2] = {};
    // Where that is large in some row of the warp, its rounding would be larger than the exponents
    // are. There m comes off S first, and the offset is 0.
    bool far = true;
    // In some row of the warp m scale_log2 + headroom is less than 0, so that the cheaper maximum
    // would not tell whether a score is above it.
    bool low = true;
};

/// S becomes P, and l adds up its rows. m is raised only where a score asks for it, as in
/// lazy_maximum: if some weight in the warp would reach 2^headroom, every row's m becomes its
/// running maximum. Only then is the result true and `keep` set. It is the factor by which l has
/// been scaled here, and by which the caller has to scale O.
template <int fragments>
__device__ inline bool softmax(float (&S_reg)[fragments][4], Rows& rows, float (&keep)[2],
                               float scale_log2) {
    constexpr float headroom = 15; // fp16 ends at 2^16, and O needs room for V
    constexpr float near = 4096;   // up to here an offset is rounded by 2^-13 at most
    float top[2];
    if (rows.low) {
        lane_max(S_reg, top);
    } else {
        lane_max_if_positive(S_reg, top);
    }
    const bool too_large = (top[0] - rows.m[0]) * scale_log2 > headroom ||
                           (top[1] - rows.m[1]) * scale_log2 > headroom;
    const bool raise = __any_sync(0xffffffff, too_large);
    if (raise) {
        for (int r = 0; r < 2; ++r) {
            const float m_new = fmaxf(rows.m[r], row_max(top[r]));
            keep[r] = fast_exp2((rows.m[r] - m_new) * scale_log2);
            rows.m[r] = m_new;
            rows.l[r] *= keep[r];
        }
        const float scaled[] = {rows.m[0] * scale_log2, rows.m[1] * scale_log2};
        rows.low = __any_sync(0xffffffff, scaled[0] < -headroom || scaled[1] < -headroom);
        rows.far = __any_sync(0xffffffff, fabsf(scaled[0]) > near || fabsf(scaled[1]) > near);
        rows.offset[0] = rows.far ? 0 : scaled[0];
        rows.offset[1] = rows.far ? 0 : scaled[1];
    }
    if (rows.far) { // near m, where weights are not 0, the difference is exact
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            for (int c = 0; c < 4; ++c) {
                S_reg[n][c] -= rows.m[c / 2];
            }
        }
    }
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            const int r = c / 2; // elements 0 and 1 are row g's, 2 and 3 row g + 8's
            S_reg[n][c] = fast_exp2(fmaf(S_reg[n][c], scale_log2, -rows.offset[r]));
            rows.l[r] += S_reg[n][c];
        }
    }
    return raise;
}

/// After all keys: divides O by l, and stores LSE, which points to that of the head's N_q rows. i
/// is the lane's first one.
template <class T, int fragments>
__device__ inline void finish(float (&O_reg)[fragments][4], const Rows& rows, float scale_log2,
                              float* LSE, int N_q, int i) {
    float normalise[2];
    for (int r = 0; r < 2; ++r) {
        const float l = row_sum(rows.l[r]);
        normalise[r] = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
        if (threadIdx.x % 4 == 0 && i + 8 * r < N_q) {
            const float m = rows.m[r] * scale_log2;
            LSE[i + 8 * r] = m * ln_2 + logf(l);
        }
    }
    scale_rows(O_reg, normalise);
    limit_O<T>(O_reg);
}
template <class T, int fragments>
__device__ inline void finish(float (&O_reg)[fragments][4], const Rows& rows, const Task& task,
                              int head, int i) {
    float* const LSE = task.LSE + int64_t{head} * task.N_q;
    finish<T>(O_reg, rows, task.scale_log2, LSE, task.N_q, i);
}

/// The task of a launch whose blocks own Tiles::Br queries each. With a mask, waves of `places`
/// blocks as in block_order; without one, one head after the other, so that the blocks that run at
/// the same time read the same K and V, and find them in L2. Where the tensors are a part of each
/// head of larger ones, `Q_rows` and `KV_rows` lie from one head to the next. A rung whose V is not
/// as wide as K says which tiles it has.
template <class Tiles, class K_tile = typename Tiles::KV, class V_tile = K_tile,
          class O_tile = typename Tiles::Q, class T>
Task make_task(const Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE, int places,
               int64_t Q_rows, int64_t KV_rows) {
    const int N_q = as_int(p.q_len, "q-len");
    const int N_kv = as_int(p.kv_len, "kv-len");
    const int heads = as_int(p.batch * p.heads, "batch x heads");
    const int group = as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(ceil_div(N_q, Tiles::Br));
    as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    const int wave_heads = p.causal ? std::clamp(places / Tr, 1, heads) : 1;
    return {.Q = tile_map<typename Tiles::Q>(Q, heads, N_q, Q_rows),
            .K = tile_map<K_tile>(K, heads / group, N_kv, KV_rows),
            .V = tile_map<V_tile>(V, heads / group, N_kv, KV_rows),
            .O = tile_map<O_tile>(O, heads, N_q, Q_rows),
            .LSE = LSE,
            .order = {heads, wave_heads, Tr},
            .group = group,
            .N_q = N_q,
            .N_kv = N_kv,
            .scale_log2 = p.scale * log2_e,
            .causal = p.causal};
}
template <class Tiles, class K_tile = typename Tiles::KV, class V_tile = K_tile,
          class O_tile = typename Tiles::Q, class T>
Task make_task(const Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE, int places) {
    return make_task<Tiles, K_tile, V_tile, O_tile>(p, Q, K, V, O, LSE, places, p.q_len, p.kv_len);
}

} // namespace flash
