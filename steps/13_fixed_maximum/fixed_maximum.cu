// Rung 13: a fixed maximum. After the first tile, nothing stands between the two products but exponentials.
//
// The idea: softmax does not need the maximum. Any number m near it will do: exp2(s - m) keeps its precision, as long
// as nothing overflows. So the maximum of the first tile serves all others, and the row maximum, its shuffles and the
// rescaling of O leave the inner loop: one straight run of instructions, in which the compiler mixes the exponentials
// of some scores with the products of others. The registers that this frees hold Q, if d <= 64.
//
//      rung 12     Q K | max, shuffle, rescale | exp2 | P V |        here     Q K .. exp2 .. P V
//
// Scores that tower over the first tile's make a sum too large to trust. A test at the end finds it, and the block
// starts over with every tile's maximum, as in rung 12: slower on such scores, and right wherever |V| < 2^67.
// Against rung 12: the above. Look at: the three kinds of tiles, and what each leaves out.
// Gained: 1.28 times FlashAttention-2, where rung 12 is at 1.12. Counter: instructions for each mma, 2.3 (d = 128).
#include "steps/13_fixed_maximum/fixed_maximum.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "common/cuda/cp_async.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/ldmatrix.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/swizzle.hpp"

namespace step13 {
namespace {

constexpr int warps = 4, threads = 32 * warps;
constexpr int M = 2; // m16 tiles of a warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr unsigned every_lane = 0xffffffff;

/// Every row sees all of a `seen` tile; an `edge` is masked. In both m_reg stays. `any` is masked, and may raise it.
enum class Tile { any, seen, edge };
template <Tile kind> constexpr std::integral_constant<Tile, kind> of_kind{};

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

template <class T, int d, int Bc>
__global__ __launch_bounds__(threads, d == 32 ? 3 : 2) void fixed_maximum(const T* Q, const T* K, const T* V, T* O,
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

    // Blocks start in the order of blockIdx: `wave` heads at a time, whose K and V stay in L2, last tiles of Q first.
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

    float m_reg[M][2];            // in units of log2: scale * log2(e) * the score that is subtracted
    float l_reg[M][4];            // C fragments of P times ones: each of the 8 columns is the row sum
    float O_reg[M][d / 8][4];     // C fragments: 16 rows x 8 columns each
    uint32_t Q_reg[d / 16][M][4]; // A fragments: 16 rows x 16 columns each
    const uint32_t ones[2] = {flash::pack<T>(1, 1), flash::pack<T>(1, 1)};
    const auto clear = [&] {
        for (int i = 0; i < M; ++i) {
            for (int e = 0; e < 4; ++e) {
                m_reg[i][e / 2] = -INFINITY;
                l_reg[i][e] = 0;
#pragma unroll
                for (int n = 0; n < d / 8; ++n) {
                    O_reg[i][n][e] = 0;
                }
            }
        }
    };

    const auto tile_step = [&](int j0, auto kind) {
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
            if constexpr (kind.value == Tile::any || d > 64) { // else it is there since the first tile
                for (int i = 0; i < M; ++i) {
                    flash::ldmatrix_x4(Q_reg[k][i], Q_smem + Q_tile::further(Q_lane, 16 * i, k));
                }
            }
#pragma unroll
            for (int n = 0; n < Bc / 8; n += 2) {
                uint32_t K_reg[4];
                flash::ldmatrix_x4(K_reg, K_smem + KV_tile::further(now + K_lane, 8 * n, k));
                for (int i = 0; i < M; ++i) {
                    flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[k][i], {K_reg[0], K_reg[1]});
                    flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[k][i], {K_reg[2], K_reg[3]});
                }
            }
        }

#pragma unroll
        for (int i = 0; i < M; ++i) {
#pragma unroll
            for (int r = 0; r < 2; ++r) { // rows g and g + 8 of the m16 tile
                if constexpr (kind.value != Tile::seen) {
                    // How many keys the row sees, from the lane's first in this tile.
                    const int visible = min(N_kv, first_row_keys + row0 + 16 * i + 8 * r) - j0 - 2 * t;
#pragma unroll
                    for (int n = 0; n < Bc / 8; ++n) {
                        for (int e = 0; e < 2; ++e) {
                            S_reg[i][n][2 * r + e] = 8 * n + e < visible ? S_reg[i][n][2 * r + e] : -INFINITY;
                        }
                    }
                }
                if constexpr (kind.value == Tile::any) {
                    float m_new = S_reg[i][0][2 * r];
#pragma unroll
                    for (int n = 0; n < Bc / 8; ++n) {
                        m_new = fmaxf(m_new, fmaxf(S_reg[i][n][2 * r], S_reg[i][n][2 * r + 1]));
                    }
                    m_new = fmaxf(m_reg[i][r], row_max(m_new) * scale_log2);
                    m_new = m_new == -INFINITY ? 0.0f : m_new; // no key to see: any number, but -inf - -inf is NaN
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

    clear();
    if (keys > 0) {
        tile_step(0, of_kind<Tile::any>); // a row that sees no key here sees none at all
    }
    int j0 = Bc;
    for (; j0 + Bc <= min(N_kv, first_row_keys); j0 += Bc) {
        tile_step(j0, of_kind<Tile::seen>);
    }
    for (; j0 < keys; j0 += Bc) {
        tile_step(j0, of_kind<Tile::edge>);
    }

    // Sums below 2^60 leave values of V up to 2^67 room in O. NaN is not below, and stays when all starts over.
    const float sum = l_reg[0][0] + l_reg[0][2] + l_reg[1][0] + l_reg[1][2]; // of the lane's four rows
    flash::cp_async_wait<0>(); // with no key to see, Q may still be landing where O goes below
    // Other threads' share of it, too; and no warp still reads the buffers. All threads copy, so all start over.
    if (__syncthreads_or(!(sum < 0x1p60f))) {
        clear();
        copy_tile(0, 0);
        flash::cp_async_commit();
        for (j0 = 0; j0 < keys; j0 += Bc) {
            tile_step(j0, of_kind<Tile::any>);
        }
        __syncwarp(); // the warp has read its rows of Q_smem, where O goes
    }

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
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    constexpr int64_t L2_share = 20 << 20; // bytes of K and V that run together: half of the L2 of an A100
    const int wave = static_cast<int>(std::clamp<int64_t>(L2_share / (p.kv_len * d * 2 * sizeof(T)), 1, heads));
    // Two blocks an SM overlap each other. If only tiles of 32 keys leave room for two (d = 128 on an A100), those win.
    constexpr int small = d == 128 ? 32 : 64;
    const auto smem_bytes = [](int Bc) { return (Br + 4 * Bc) * d * 2; }; // Q, and two tiles each of K and V
    const int Bc =
        flash::blocks_per_sm(smem_bytes(64)) == 1 && flash::blocks_per_sm(smem_bytes(small)) == 2 ? small : 64;
    flash::launch(Bc == 64 ? fixed_maximum<T, d, 64> : fixed_maximum<T, d, small>, blocks, threads, smem_bytes(Bc), Q,
                  K, V, O, LSE, heads, wave, Tr, group, N_q, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T> void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*, const flash::Half*, flash::Half*,
                        float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*, const flash::Bfloat16*,
                        flash::Bfloat16*, float*);

} // namespace step13
