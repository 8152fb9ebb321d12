// lean_softmax: Fewer instructions between the products.
//
// The idea: each of the four schedulers of an SM issues one instruction per clock, and its tensor
// core takes one mma in six to seven clocks. So every other instruction counts. Three kinds go:
//   - exp. e^x is 2^(x log2(e)), and 2^x is what the hardware has. scale * log2(e) is one number,
//     so one FFMA and one ex2 per score are left. The FMUL by log2(e) goes, and what __expf does
//     for very small results.
//   - The row sum. P times a matrix of ones is one mma more, beside the d / 8 of P V. Its C
//     fragment holds the sum of each row in every column: no additions, no shuffles, not even at
//     the end.
//   - Addresses. A lane computes where its row of the first fragment lies; the others are an XOR
//     and a constant away.
//
// What it costs: LSE is the log of a sum of rounded weights now. Each is off by at most 2^-11 of
// itself in fp16 and 2^-8 in bf16, so LSE is off by at most that, 0.0005 and 0.004. (In fp16 a
// small weight is off by 2^-25, where the largest is 1: N_kv 2^-25 more.) And the FFMA subtracts a
// rounded m from a product that is not rounded. So the largest exponent is m's rounding, and not 0.
//
// Parent: block_order. New: the above.
// Look at: softmax, which has lost its last loop, and the addresses in multiply_QK and multiply_PV.
// Gained: as fast as FlashAttention-2, or faster. Counter: instructions per mma.
#include "steps/26_lean_softmax/lean_softmax.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace lean_softmax {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Two elements of T that are 1, in one register.
template <class T> constexpr uint32_t ones = flash::from_float<T>(1).bits * 0x10001u;

/// How many blocks an SM should have room for: a thread gets no more registers than that allows.
template <int d> constexpr int blocks_per_sm = d == 32 ? 3 : 2;

/// Dynamic shared memory: Q, and two tiles each of K and V. 96 KiB at d = 128.
template <int d> struct Shared {
    flash::SwizzledTile<d, Br> Q;
    flash::SwizzledTile<d, Bc> K[2], V[2];
};

/// S_reg = Q K^T: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const flash::SwizzledTile<d, Br>& Q,
                            const flash::SwizzledTile<d, Bc>& K) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    // Lanes 0-15 name the 16 rows of columns 0-7 of a fragment of Q, lanes 16-31 those of columns
    // 8-15. B = K^T for 16 keys: lanes 0-7 name keys 0-7 of chunk 2k, 8-15 the same of chunk 2k +
    // 1, the rest keys 8-15.
    const int Q_lane = Q.offset(warp_rows * warp + lane % 16, lane / 16);
    const int K_lane = K.offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                S_reg[i][n][c] = 0;
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

/// S of an m16 tile becomes P, relative to the running maximum m; what was summed up so far, l and
/// O, is rescaled to it.
template <int d>
__device__ void softmax(float (&S_reg)[Bc / 8][4], float (&m_reg)[2], float (&l_reg)[4],
                        float (&O_reg)[d / 8][4], float scale_log2) {
    float m_new[2], shift[2], keep_log2[2]; // of rows g and g + 8
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float top = S_reg[0][2 * r];
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            top = fmaxf(top, fmaxf(S_reg[n][2 * r], S_reg[n][2 * r + 1]));
        }
        top = fmaxf(m_reg[r], flash::row_max(top));
        // no key to see: any number, but -inf - -inf is NaN
        m_new[r] = top == -INFINITY ? 0.0f : top;
        // by __fmul_rn rounded here, and not fused with a subtraction: P and `keep` refer to it
        shift[r] = __fmul_rn(m_new[r], scale_log2);
        keep_log2[r] = __fmul_rn(m_reg[r], scale_log2) - shift[r];
    }
    if (fmaxf(fabsf(shift[0]), fabsf(shift[1])) >= 0x1p20f) {
        // its rounding, 2^-24 of it, is more than 1/16: so m is subtracted before scores are scaled
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            shift[r] = 0;
            keep_log2[r] = (m_reg[r] - m_new[r]) * scale_log2;
#pragma unroll
            for (int n = 0; n < Bc / 8; ++n) {
                S_reg[n][2 * r] -= m_new[r];
                S_reg[n][2 * r + 1] -= m_new[r];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float keep = flash::fast_exp2(keep_log2[r]);
        m_reg[r] = m_new[r];
        for (int c = 2 * r; c < 2 * r + 2; ++c) {
            l_reg[c] *= keep;
#pragma unroll
            for (int n = 0; n < Bc / 8; ++n) {
                S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale_log2, -shift[r]));
            }
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                O_reg[n][c] *= keep;
            }
        }
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, int d>
__device__ void multiply_PV(float (&O_reg)[M][d / 8][4], float (&l_reg)[M][4],
                            const float (&P)[M][Bc / 8][4], const flash::SwizzledTile<d, Bc>& V) {
    const int lane = threadIdx.x % 32;
    // B = V, 16 keys and 16 columns: lanes 0-15 name the keys of chunk n, 16-31 those of chunk n +
    // 1.
    const int V_lane = V.offset(lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        uint32_t P_reg[M][4]; // A fragments: 16 rows x 16 keys each
        for (int i = 0; i < M; ++i) {
            flash::pack_A<T>(P_reg[i], P[i][2 * k], P[i][2 * k + 1]);
            flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], {ones<T>, ones<T>});
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
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void lean_softmax(
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
    float m_reg[M][2];             // of rows g and g + 8 of each m16 tile
    float l_reg[M][4] = {};        // C fragments
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
#pragma unroll
    for (int i = 0; i < M; ++i) {
        m_reg[i][0] = m_reg[i][1] = -INFINITY;
    }

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
        multiply_QK<T>(S_reg, smem.Q, smem.K[now]);
#pragma unroll
        for (int i = 0; i < M; ++i) {
            if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
                flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
            }
            softmax<d>(S_reg[i], m_reg[i], l_reg[i], O_reg[i], scale_log2);
        }
        multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[now]);
    }
    // with no key to see, Q is still landing: a block must not leave before its copies have
    flash::cp_async_wait<0>();

#pragma unroll
    for (int i = 0; i < M; ++i) {
        const float l[2] = {l_reg[i][0], l_reg[i][2]};
        const float scale = scale_log2 * flash::ln_2;
        const float m[2] = {scale * m_reg[i][0], scale * m_reg[i][1]};
        flash::store_O_and_LSE(O, LSE, O_reg[i], m, l, row0 + 16 * i, rows);
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const auto kernel = lean_softmax<T, d>;
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

} // namespace lean_softmax
