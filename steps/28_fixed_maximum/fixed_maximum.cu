// fixed_maximum: P V no longer waits to hear whether the maximum holds.
//
// The idea: lazy_maximum asks before each P V whether m still holds, and P V waits for the answer.
// It is nearly always yes. So here P V is computed first, as if m held, and the question comes
// afterwards. A tile whose weights were too large is repaired:
//
//      lazy_maximum   Q K^T - m | signs, vote | exp2 | P V
//      here           Q K^T - m .. exp2 .. P V | vote
//
//   - How the warp knows: the product with ones already sums up each row of P. Columns 1 and 3 of l
//     start at 0 in every tile, so they hold the sums of this tile alone.
//   - What is repaired: the same P V is subtracted again, and then the tile is computed as in
//     lazy_maximum, which raises m first. A warp that had to do so asks first from there on.
//   - Why O survives: weights that fp16 cannot hold saturate at 65504, so O stays finite. In bf16
//     they may be infinite, but then O of the rows so far no longer counts, and is dropped.
//
// Within one straight run of instructions the compiler mixes the exponentials of some scores with
// the products of others, and that is what is gained.
// A fixed maximum, and recomputation where it fails, were published with FlashDecoding++ (2023).
// Parent: lazy_maximum. New: tiles that are computed before they are asked about, and the repair.
// Look at: what becomes of O when a weight is infinite. Gained: speed, as long as scores do not
// rise by more than the window. In bf16 |V| must stay below 2^50, or a repair may overflow.
#include "steps/28_fixed_maximum/fixed_maximum.hpp"

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

namespace fixed_maximum {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Weights should be below 2^window. When m is raised, a row's largest becomes 2^top_weight, so
/// scores may rise by 16 powers of two in fp16 before a tile has to be repaired, and by 80 in bf16,
/// which has the exponents of fp32: from 40 below 1, where small V needs some, to 40 above, where
/// large V does.
template <class T> constexpr float window = flash::dtype_of<T> == flash::DType::fp16 ? 16 : 40;
template <class T> constexpr float top_weight = flash::dtype_of<T> == flash::DType::fp16 ? 0 : -40;

/// A weight that does not fit fp16 counts as 65504. So a row of P that sums up to less has none,
/// and in bf16 none beyond the window.
template <class T>
constexpr float limit = flash::dtype_of<T> == flash::DType::fp16 ? 65504 : 0x1p40f;

/// Where m rises so far that a row keeps less than this, O and l are dropped: they may be infinite.
/// N keys summed up to less than N 2^window, and now one key weighs 2^top_weight. So less than
/// N 2^(40 + 40 - 112) of the sum is lost, 2^-11 of it with 2^21 keys.
constexpr float negligible = 0x1p-112f;

/// How many blocks an SM should have room for: a thread gets no more registers than that allows.
template <int d> constexpr int blocks_per_sm = d == 32 ? 3 : 2;

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

/// Raises m of each row whose largest weight is above 2^top_weight (of every row in the first tile)
/// to make it that. S, O, l follow.
template <class T, int fragments>
__device__ void raise_maximum(float (&S_reg)[M][Bc / 8][4], float (&m_reg)[M][2],
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
        const bool drop = keep < negligible; // infinity or NaN times 0 is not 0
        l_reg[i][c] = drop ? 0.0f : l_reg[i][c] * keep;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
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
template <class T, int sign = 1>
__device__ void exponentials(float (&S_reg)[M][Bc / 8][4], float scale_log2) {
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                const float exponent = fmaf(S_reg[i][n][c], scale_log2, window<T>);
                S_reg[i][n][c] = sign * flash::fast_exp2(exponent);
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
            flash::pack_A_saturated<T>(P_reg[i], P[i][2 * k], P[i][2 * k + 1]);
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
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void fixed_maximum(
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
    bool repaired = false;         // has the warp repaired a tile?

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
        // an edge: some row does not see the whole tile
        const bool edge = j0 + Bc > whole;
        const auto careful_tile = [&] { // as in lazy_maximum: first m, then P V
            multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[now]);
            if (edge) {
                for (int i = 0; i < M; ++i) {
                    flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
                }
            }
            if (j0 == 0 || !flash::all_negative(S_reg)) {
                raise_maximum<T>(S_reg, m_reg, l_reg, O_reg, scale_log2, j0 == 0);
            }
            exponentials<T>(S_reg, scale_log2);
            multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[now]);
        };
        if (j0 == 0 || edge || repaired) {
            careful_tile();
        } else { // first P V, then the question whether m was large enough
            multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[now]);
            exponentials<T>(S_reg, scale_log2);
            l_reg[0][1] = l_reg[0][3] = l_reg[1][1] = l_reg[1][3] = 0;
            multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[now]);
            const float largest_sum =
                fmaxf(fmaxf(l_reg[0][1], l_reg[0][3]), fmaxf(l_reg[1][1], l_reg[1][3]));
            if (__any_sync(0xffffffff, largest_sum >= limit<T>)) {
                // take it back: S again, which P has overwritten, and the same weights, subtracted
                multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[now]);
                exponentials<T, -1>(S_reg, scale_log2);
                multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[now]);
                careful_tile();
                repaired = true;
            }
        }
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
    const auto kernel = fixed_maximum<T, d>;
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

} // namespace fixed_maximum
