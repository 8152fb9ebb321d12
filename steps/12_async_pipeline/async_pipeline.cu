// Rung 12: an asynchronous pipeline. The next tile is on its way while this one is computed.
//
// The idea: leave nothing for the tensor cores to wait for. cp.async copies K and V of tile j + 1 into a second buffer
// while tile j is multiplied, and one barrier a tile is enough; it comes when the copy has long ended:
//
//      copies        K0 V0 | K1 V1        | K2 V2        |
//      warps               | Q K0  P V0   | Q K1  P V1   | Q K2  P V2
//                          ^ wait, barrier, start the next copies, compute
//
// And do less beside the products:
//   - exp2 in place of exp: scale * log2(e) is folded into the subtraction of the maximum, one FFMA a score;
//   - the row sum is one more product, of P and a column of ones: no additions, no shuffles, not even at the end;
//   - tiles that every row sees whole have a loop of their own, without a mask;
//   - a lane computes one address for each operand; those of its other fragments are an XOR and a constant away;
//   - causal tiles with the most keys start first, so that the last blocks to run are short ones.
// Against rung 11: the above. Look at: the one barrier, and the two hazards that it removes.
// Gained: it passes FlashAttention-2. Counters: instructions for each mma, 6.1 before and 3.2 now (d = 128, full
// tiles); the same bytes from memory.
#include "steps/12_async_pipeline/async_pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "common/cuda/cp_async.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/ldmatrix.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/swizzle.hpp"

namespace step12 {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles of a warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys
constexpr unsigned every_lane = 0xffffffff;

/// Maximum over the 4 lanes that share a row, in each of them.
__device__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(every_lane, x, 1));
    return fmaxf(x, __shfl_xor_sync(every_lane, x, 2));
}

/// Starts copying the thread's part of a tile: 16 bytes of each `step`th row, from `from` to `smem`.
/// Rows from `valid` on, counted from the thread's first, become zeros.
template <int d, int rows, class T> __device__ void start_copy(char* smem, const T* from, int valid) {
    constexpr int step = threads / (d / 8); // rows that the block copies at once: a multiple of 8
#pragma unroll
    for (int r = 0; r < rows; r += step) {
        flash::cp_async_16(smem + r * flash::SwizzledTile<d, rows>::row_bytes, from + r * d, r < valid);
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, d == 32 ? 3 : 2) void async_pipeline(const T* Q, const T* K, const T* V, T* O,
                                                                           float* LSE, int heads, int wave, int Tr,
                                                                           int group, int N_q, int N_kv,
                                                                           float scale_log2, bool causal) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;                // the lane's place in a fragment: row g and g + 8 of A and C,
    const int t = lane % 4;                // columns 2t and 2t + 1
    const int row0 = warp_rows * warp + g; // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    using Q_tile = flash::SwizzledTile<d, Br>;
    using KV_tile = flash::SwizzledTile<d, Bc>;
    char* Q_smem = flash::dynamic_shared<char>();
    char* K_smem = Q_smem + Q_tile::bytes; // two tiles, and two of V
    char* V_smem = K_smem + 2 * KV_tile::bytes;

    // Where the lane's row of the first fragment starts; those of all others are constants away.
    const int Q_lane = Q_tile::offset(warp_rows * warp + lane % 16, lane / 16);
    const int K_lane = KV_tile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const int V_lane = KV_tile::offset(lane % 16, lane / 16);

    // Blocks start in the order of blockIdx. `wave` heads run together, so that their K and V stay in L2; within a wave
    // all heads' last tiles of Q come first, which see the most keys when causal.
    const int first_head = blockIdx.x / (wave * Tr) * wave;
    const int wave_heads = min(wave, heads - first_head);
    const int64_t head = first_head + blockIdx.x % (wave * Tr) % wave_heads;
    const int i0 = (Tr - 1 - blockIdx.x % (wave * Tr) / wave_heads) * Br;
    const int copy_row = threadIdx.x / (d / 8); // where the thread's first 16 bytes of a tile are
    const int copy_chunk = threadIdx.x % (d / 8);
    Q += (head * N_q + i0) * d + copy_row * d + 8 * copy_chunk;
    K += head / group * N_kv * d + copy_row * d + 8 * copy_chunk;
    V += head / group * N_kv * d + copy_row * d + 8 * copy_chunk;
    O += (head * N_q + i0) * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;

    float m_reg[M][2];             // in units of log2: scale * log2(e) * the largest score
    float l_reg[M][4] = {};        // C fragments of P times ones: each of the 8 columns is the row sum
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    const uint32_t ones[2] = {flash::pack<T>(1, 1), flash::pack<T>(1, 1)};
    for (int i = 0; i < M; ++i) {
        m_reg[i][0] = m_reg[i][1] = -INFINITY;
    }

    const int copy_lane = KV_tile::offset(copy_row, copy_chunk);
    start_copy<d, Br>(Q_smem + Q_tile::offset(copy_row, copy_chunk), Q, rows - copy_row);
    const auto copy_tile = [&](int j0, int buffer) {
        start_copy<d, Bc>(K_smem + (buffer + copy_lane), K + int64_t{j0} * d, N_kv - copy_row - j0);
        start_copy<d, Bc>(V_smem + (buffer + copy_lane), V + int64_t{j0} * d, N_kv - copy_row - j0);
    };
    if (keys > 0) {
        copy_tile(0, 0);
    }
    flash::cp_async_commit(); // Q, and K and V of the first tile

    // One tile of keys. `edge`: some row does not see the whole tile.
    const auto tile_step = [&](int j0, auto edge) {
        const int now = j0 & Bc ? KV_tile::bytes : 0; // which of the two buffers
        flash::cp_async_wait<0>();                    // this thread's copies of tile j0 have landed
        __syncthreads(); // so have all other threads'; and no warp still reads the tile before, in the other buffer
        if (j0 + Bc < keys) {
            copy_tile(j0 + Bc, KV_tile::bytes - now);
            flash::cp_async_commit();
        }

        float S_reg[M][Bc / 8][4] = {}; // C fragments: 16 rows x 8 keys each; S, then P in its place
#pragma unroll
        for (int k = 0; k < d / 16; ++k) {
            uint32_t Q_reg[M][4]; // A fragments: 16 rows x 16 columns each
            for (int i = 0; i < M; ++i) {
                flash::ldmatrix_x4(Q_reg[i], Q_smem + Q_tile::further(Q_lane, 16 * i, k));
            }
#pragma unroll
            for (int n = 0; n < Bc / 8; n += 2) {
                uint32_t K_reg[4];
                flash::ldmatrix_x4(K_reg, K_smem + KV_tile::further(now + K_lane, 8 * n, k));
                for (int i = 0; i < M; ++i) {
                    flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[i], {K_reg[0], K_reg[1]});
                    flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[i], {K_reg[2], K_reg[3]});
                }
            }
        }

#pragma unroll
        for (int i = 0; i < M; ++i) {
#pragma unroll
            for (int r = 0; r < 2; ++r) { // rows g and g + 8 of the m16 tile
                if constexpr (edge.value) {
                    // How many keys the row sees, from the lane's first in this tile.
                    const int visible = min(N_kv, first_row_keys + row0 + 16 * i + 8 * r) - j0 - 2 * t;
#pragma unroll
                    for (int n = 0; n < Bc / 8; ++n) {
                        for (int e = 0; e < 2; ++e) {
                            S_reg[i][n][2 * r + e] = 8 * n + e < visible ? S_reg[i][n][2 * r + e] : -INFINITY;
                        }
                    }
                }
                float m_new = S_reg[i][0][2 * r];
#pragma unroll
                for (int n = 0; n < Bc / 8; ++n) {
                    m_new = fmaxf(m_new, fmaxf(S_reg[i][n][2 * r], S_reg[i][n][2 * r + 1]));
                }
                m_new = fmaxf(m_reg[i][r], row_max(m_new) * scale_log2);
                if constexpr (edge.value) {
                    m_new = m_new == -INFINITY ? 0.0f : m_new; // no key to see: any number, but -inf - -inf is NaN
                }
                const float keep = flash::fast_exp2(m_reg[i][r] - m_new);
                m_reg[i][r] = m_new;
                for (int e = 2 * r; e < 2 * r + 2; ++e) {
                    l_reg[i][e] *= keep;
#pragma unroll
                    for (int n = 0; n < d / 8; ++n) {
                        O_reg[i][n][e] *= keep;
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < M; ++i) {
#pragma unroll
            for (int n = 0; n < Bc / 8; ++n) {
                for (int e = 0; e < 4; ++e) {
                    S_reg[i][n][e] = flash::fast_exp2(fmaf(S_reg[i][n][e], scale_log2, -m_reg[i][e / 2]));
                }
            }
        }

#pragma unroll
        for (int k = 0; k < Bc / 16; ++k) {
            uint32_t P_reg[M][4]; // two C fragments side by side, rounded, are an A fragment
            for (int i = 0; i < M; ++i) {
                for (int e = 0; e < 4; ++e) {
                    const auto& S = S_reg[i][2 * k + e / 2];
                    P_reg[i][e] = flash::pack<T>(S[e % 2 * 2], S[e % 2 * 2 + 1]);
                }
                flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], ones);
            }
#pragma unroll
            for (int n = 0; n < d / 8; n += 2) {
                uint32_t V_reg[4];
                flash::ldmatrix_x4_trans(V_reg, V_smem + KV_tile::further(now + V_lane, 16 * k, n / 2));
                for (int i = 0; i < M; ++i) {
                    flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                    flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
                }
            }
        }
    };

    int j0 = 0;
    for (; j0 + Bc <= min(N_kv, first_row_keys); j0 += Bc) {
        tile_step(j0, std::false_type{});
    }
    for (; j0 < keys; j0 += Bc) {
        tile_step(j0, std::true_type{});
    }
    flash::cp_async_wait<0>(); // with no key to see, Q may still be landing where O goes now
    __syncthreads();           // and other threads' share of it; otherwise, this costs one barrier a block

    // O through the warp's own rows of Q_smem: 4-byte pieces in, 16-byte pieces out.
#pragma unroll
    for (int i = 0; i < M; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = row0 + 16 * i + 8 * r;
            const float l = l_reg[i][2 * r];
            const float normalise = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(Q_smem + Q_tile::offset(row, n) + 4 * t) =
                    flash::pack<T>(O_reg[i][n][2 * r] * normalise, O_reg[i][n][2 * r + 1] * normalise);
            }
            if (t == 0 && row < rows) {
                LSE[row] = m_reg[i][r] * flash::ln_2 + logf(l);
            }
        }
    }
    __syncwarp(); // the warp's rows of O are complete
    for (int e = lane; e < warp_rows * d / 8; e += 32) {
        const int row = warp_rows * warp + e / (d / 8);
        if (row < rows) {
            *reinterpret_cast<uint4*>(O + row * d + e % (d / 8) * 8) =
                *reinterpret_cast<const uint4*>(Q_smem + Q_tile::offset(row, e % (d / 8)));
        }
    }
}

template <class T, int d> void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads"); // query heads to one K/V head
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    constexpr int smem_bytes = (Br + 4 * Bc) * d * 2; // Q, and two tiles each of K and V: 96 KiB at d = 128
    constexpr int64_t L2_share = 20 << 20;            // bytes of K and V that run together: half of the L2 of an A100
    const int wave = static_cast<int>(std::clamp<int64_t>(L2_share / (p.kv_len * d * 2 * sizeof(T)), 1, heads));
    flash::launch(async_pipeline<T, d>, blocks, threads, smem_bytes, Q, K, V, O, LSE, heads, wave, Tr, group, N_q, N_kv,
                  p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T> void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*, const flash::Half*, flash::Half*,
                        float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*, const flash::Bfloat16*,
                        flash::Bfloat16*, float*);

} // namespace step12
