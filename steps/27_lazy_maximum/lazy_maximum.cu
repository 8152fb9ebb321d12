// lazy_maximum: The row maximum is computed only where it has to change.
//
// The idea: softmax does not need the maximum. Any number m near it will do, as long as no weight
// overflows. So m stays until a weight would reach 2^window. Only then it is raised, and O and l
// are rescaled. To ask takes no maximum:
//   - The accumulators of Q K^T start at -m, which costs nothing. So S holds scores less m.
//   - A score has reached m where S is not negative. That is one bit, and one instruction ANDs
//     three registers: 32 of them for a lane's 64 scores, and one vote of the warp, in place of 64
//     maxima.
//
//      lean_softmax   Q K^T | max, shuffle, rescale | exp2 | P V
//      here           Q K^T - m | signs, vote | exp2 | P V
//
// Weights are exp2(scale * S + window): below 2^window, and 1 for the largest score when m was
// raised last.
// Rescaling only where it is needed was published with FlashAttention-4 (2026).
// Parent: lean_softmax. New: softmax falls apart into all_negative, raise_maximum and exponentials;
// m is a score now, not its log2.
// Look at: what is left between the two products when nothing is raised.
// Gained: no shuffles and no rescaling in most tiles, whatever the scores are. Counter:
// instructions per mma.
#include "steps/27_lazy_maximum/lazy_maximum.hpp"

#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace lazy_maximum {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Weights are less than 2^window, so that P fits T. bf16 has the range of fp32, of which O needs
/// some for large V.
template <class T> constexpr float window = flash::dtype_of<T> == flash::DType::fp16 ? 14 : 30;

/// How many blocks an SM should have room for: a thread gets no more registers than that allows.
template <int d> constexpr int blocks_per_sm = d == 128 ? 2 : 3;

/// Dynamic shared memory: Q, and two tiles each of K and V. 96 KiB at d = 128.
template <int d> struct Shared {
    flash::SwizzledTile<d, Br> Q;
    flash::SwizzledTile<d, Bc> K[2], V[2];
};

/// S_reg = Q K^T - m: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys
/// each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const float (&m_reg)[M][2],
                            const flash::SwizzledTile<d, Br>& Q,
                            const flash::SwizzledTile<d, Bc>& K) {
    const int Q_lane = Q.offset_of_A(threadIdx.x / 32 * warp_rows, threadIdx.x % 32);
    const int K_lane = K.offset_of_B(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                S_reg[i][n][c] = -m_reg[i][c / 2];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t Q_reg[M][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < M; ++i) {
            flash::ldmatrix_x4(Q_reg[i], Q.data + Q.fragment(Q_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K.data + K.fragment(K_lane, 8 * n, k));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[i], {K_reg[0], K_reg[1]});
                flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[i], {K_reg[2], K_reg[3]});
            }
        }
    }
}

/// Is S negative in the whole warp, so that no score has reached its row's m?
__device__ bool all_negative(const float (&S_reg)[M][Bc / 8][4]) {
    // four chains of ANDs: in a single one, each waits for the one before
    unsigned sign[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                sign[c] &= __float_as_uint(S_reg[i][n][c]);
            }
        }
    }
    return __all_sync(0xffffffff, (sign[0] & sign[1] & sign[2] & sign[3]) >> 31);
}

/// Raises m of each row whose largest weight is above 1 (of every row in the first tile) to make it
/// 1. S, O, l follow.
template <class T, int fragments>
__device__ void raise_maximum(float (&S_reg)[M][Bc / 8][4], float (&m_reg)[M][2],
                              float (&l_reg)[M][4], float (&O_reg)[M][fragments][4],
                              float scale_log2, bool first) {
    // scores from a weight of 1 up to m, or so many as leave m finite, where the scale is 1e-37
    const float room = fminf(window<T> / scale_log2, 0x1p126f);
    // a row that sees no key has top = -inf, and keeps m = 0
    const float lowest = first ? -FLT_MAX : -room;
// rows g and g + 8 of each m16 tile: elements c and c + 1 of C
#pragma unroll
    for (int row = 0; row < 2 * M; ++row) {
        const int i = row / 2;
        const int c = row % 2 * 2;
        float top = S_reg[i][0][c];
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            top = fmaxf(top, fmaxf(S_reg[i][n][c], S_reg[i][n][c + 1]));
        }
        top = flash::row_max(top);
        const bool raise = top >= lowest;
        const float m_old = m_reg[i][row % 2];
        m_reg[i][row % 2] += raise ? top + room : 0.0f;
        // As m has risen, rounded: beside scores of 1e9 `room` is lost. The largest S must end at
        // -room to 0 all the same.
        const float risen = m_reg[i][row % 2] - m_old;
        const float rise = raise ? fminf(fmaxf(risen, top), top + room) : 0.0f;
        // m may fall in the first tile: O = l = 0
        const float keep = flash::fast_exp2(fminf(-rise * scale_log2, 0.0f));
        l_reg[i][c] *= keep;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            S_reg[i][n][c] -= rise;
            S_reg[i][n][c + 1] -= rise;
        }
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            O_reg[i][n][c] *= keep;
            O_reg[i][n][c + 1] *= keep;
        }
    }
}

/// S becomes P: the weight of each score less m.
template <class T> __device__ void exponentials(float (&S_reg)[M][Bc / 8][4], float scale_log2) {
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                const float exponent = fmaf(S_reg[i][n][c], scale_log2, window<T>);
                S_reg[i][n][c] = flash::fast_exp2(exponent);
            }
        }
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, int d>
__device__ void multiply_PV(float (&O_reg)[M][d / 8][4], float (&l_reg)[M][4],
                            const float (&P)[M][Bc / 8][4], const flash::SwizzledTile<d, Bc>& V) {
    const int V_lane = V.offset_of_B_transposed(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        uint32_t P_reg[M][4]; // A fragments: 16 rows x 16 keys each
        for (int i = 0; i < M; ++i) {
            flash::pack_A<T>(P_reg[i], P[i][2 * k], P[i][2 * k + 1]);
            flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], {flash::ones<T>, flash::ones<T>});
        }
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            uint32_t V_reg[4];
            flash::ldmatrix_x4_trans(V_reg, V.data + V.fragment(V_lane, 16 * k, n / 2));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
            }
        }
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void lazy_maximum(
    const T* Q, const T* K, const T* V, T* O, float* LSE, flash::TileOrder order, int group,
    int N_q, int N_kv, float scale_log2, bool causal) {
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + g;
    auto& smem = *flash::dynamic_shared<Shared<d>>();

    const auto [head, tile] = flash::tile_of(blockIdx.x, order);
    const int i0 = tile * Br;
    const int64_t first_row = int64_t{head} * N_q + i0;
    const int64_t first_key = int64_t{head / group} * N_kv;
    Q += first_row * d;
    K += first_key * d;
    V += first_key * d;
    O += first_row * d;
    LSE += first_row;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;
    const int whole = min(N_kv, first_row_keys); // keys that every row of the block sees

    // All loops over these arrays are unrolled; those of two or four steps the compiler unrolls by
    // itself.
    // of rows g and g + 8 of each m16 tile: what is subtracted from their scores
    float m_reg[M][2] = {};
    float l_reg[M][4] = {};        // C fragments
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    const auto start_KV = [&](int j0, int buffer) {
        flash::start_tile<threads>(smem.K[buffer], K + int64_t{j0} * d, N_kv - j0);
        flash::start_tile<threads>(smem.V[buffer], V + int64_t{j0} * d, N_kv - j0);
    };
    flash::start_tile<threads>(smem.Q, Q, rows);
    if (keys > 0) {
        start_KV(0, 0);
    }
    flash::cp_async_commit(); // Q, and K and V of the first tile

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int now = j0 / Bc % 2; // which of the two buffers
        flash::cp_async_wait<0>();   // this thread's copies of tile j0 have landed
        // so have all other threads'; and no warp still reads the tile before, in the other buffer
        __syncthreads();
        if (j0 + Bc < keys) {
            start_KV(j0 + Bc, 1 - now);
            flash::cp_async_commit();
        }

        float S_reg[M][Bc / 8][4]; // S, then P in its place
        multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[now]);
        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            for (int i = 0; i < M; ++i) {
                flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
            }
        }
        if (j0 == 0 || !all_negative(S_reg)) {
            raise_maximum<T>(S_reg, m_reg, l_reg, O_reg, scale_log2, j0 == 0);
        }
        exponentials<T>(S_reg, scale_log2);
        multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[now]);
    }
    // with no key to see, Q is still landing: a block must not leave before its copies have
    flash::cp_async_wait<0>();

#pragma unroll
    for (int i = 0; i < M; ++i) {
        const float l[2] = {l_reg[i][0], l_reg[i][2]};
        const float m[2] = {flash::ln_2 * (m_reg[i][0] * scale_log2 - window<T>),
                            flash::ln_2 * (m_reg[i][1] * scale_log2 - window<T>)};
        flash::store_O_and_LSE(O, LSE, O_reg[i], m, l, row0 + 16 * i, rows);
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const auto kernel = lazy_maximum<T, d>;
    const int places = flash::resident_blocks(kernel, threads, sizeof(Shared<d>));
    const flash::TileOrder order =
        flash::order_in_waves(p, p.heads, flash::ceil_div(N_q, Br), places);
    flash::launch(kernel, order.blocks(), threads, sizeof(Shared<d>), Q, K, V, O, LSE, order, group,
                  N_q, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace lazy_maximum
