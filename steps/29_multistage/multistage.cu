// multistage: A warp waits until its tile is there, and no longer for the rest of
// its block.
//
// The idea: __syncthreads() lets no warp begin a tile before all have left the one before. Here a
// tile of K and V has a slot of shared memory, one of four (of two in small blocks at d = 128), and
// two mbarriers:
//
//      full[slot]     each thread's copies have landed       -> a warp may read the slot
//      empty[slot]    each thread is through with the tile   -> a warp may copy another into it
//
//   - Copies run two tiles ahead. A slot that is refilled was left a whole tile ago, so nearly
//     always nobody waits.
//   - Warps drift apart by two tiles and more: one computes exponentials while another's products
//     run.
//   - So one block may fill an SM, and no second one is needed to work while the first one waits.
//     At d = 128 eight warps share each tile, and half as many copies bring as many keys.
// Several tiles in flight behind cp.async are CUTLASS's "multistage" pipeline; mbarriers came with
// the A100 (2020).
// Against fixed_maximum: barriers per tile, up to four slots, eight warps at d = 128, m raised
// without touching S. The order of the blocks is from common/cuda.
// Look at: which warp waits, and for what. Gained: speed at d = 128, for long heads, where a block
// may have 193 KiB.
#include "steps/29_multistage/multistage.hpp"

#include <algorithm>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace multistage {
namespace {

constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Bc = 64; // keys

/// What a block's size decides: 256 queries in 193 KiB of shared memory at d = 128, or 128 in at
/// most 97 KiB.
template <int d_, int warps_> struct Tiles {
    static constexpr int d = d_, warps = warps_, threads = 32 * warps;
    static constexpr int Br = warp_rows * warps;                 // queries
    static constexpr int slots = d == 128 && warps == 4 ? 2 : 4; // for tiles of K, and of V
    static constexpr int ahead = slots / 2 * Bc; // keys: so far in advance a tile is copied
    static constexpr int blocks = d == 32 ? 3 : 8 / warps; // per SM
    using Q = flash::SwizzledTile<d, Br>;
    using KV = flash::SwizzledTile<d, Bc>;
};

template <class Tiles> struct Shared {
    alignas(1024) char Q[Tiles::Q::bytes];
    alignas(1024) char K[Tiles::slots][Tiles::KV::bytes], V[Tiles::slots][Tiles::KV::bytes];
    uint64_t full[Tiles::slots], empty[Tiles::slots];
};

/// Columns 16 k to 16 k + 15 of the warp's rows of Q.
template <class Tiles> __device__ void load_Q(uint32_t (&Q_reg)[M][4], const char* Q_smem, int k) {
    const int Q_lane = Tiles::Q::lane_of_A(threadIdx.x / 32 * warp_rows, threadIdx.x % 32);
    for (int i = 0; i < M; ++i) {
        flash::ldmatrix_x4(Q_reg[i], Q_smem + Tiles::Q::fragment(Q_lane, 16 * i, k));
    }
}

/// S_reg = Q K^T - m: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys
/// each.
template <class T, class Tiles>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const float (&m_reg)[M][2],
                            uint32_t (&Q_reg)[Tiles::d / 16][M][4], const char* Q_smem,
                            const char* K_smem) {
    const int K_lane = Tiles::KV::lane_of_B(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int e = 0; e < 4 * M; ++e) {
            S_reg[e / 4][n][e % 4] = -m_reg[e / 4][e % 4 / 2];
        }
    }
#pragma unroll
    for (int k = 0; k < Tiles::d / 16; ++k) {
        if constexpr (Tiles::d > 64) { // else it is in registers since the first tile
            load_Q<Tiles>(Q_reg[k], Q_smem, k);
        }
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K_smem + Tiles::KV::fragment(K_lane, 8 * n, k));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[k][i], {K_reg[0], K_reg[1]});
                flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[k][i], {K_reg[2], K_reg[3]});
            }
        }
    }
}

/// S becomes P.
template <class T>
__device__ void exponentials(float (&S_reg)[M][Bc / 8][4], const float (&shift)[M][2],
                             float scale_log2) {
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int e = 0; e < 4 * M; ++e) {
            S_reg[e / 4][n][e % 4] =
                flash::weight<T>(S_reg[e / 4][n][e % 4], scale_log2, shift[e / 4][e % 4 / 2]);
        }
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, class Tiles>
__device__ void multiply_PV(float (&O_reg)[M][Tiles::d / 8][4], float (&l_reg)[M][4],
                            const float (&P)[M][Bc / 8][4], const char* V_smem) {
    const int V_lane = Tiles::KV::lane_of_A(0, threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        // two C fragments side by side, rounded, are an A fragment of 16 rows x 16 keys
        uint32_t P_reg[M][4];
        for (int i = 0; i < M; ++i) {
            for (int a = 0; a < 4; ++a) {
                const auto& C = P[i][2 * k + a / 2];
                P_reg[i][a] = flash::pack_saturated<T>(C[a % 2 * 2], C[a % 2 * 2 + 1]);
            }
            flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], {flash::ones<T>, flash::ones<T>});
        }
#pragma unroll
        for (int n = 0; n < Tiles::d / 8; n += 2) {
            uint32_t V_reg[4];
            flash::ldmatrix_x4_trans(V_reg, V_smem + Tiles::KV::fragment(V_lane, 16 * k, n / 2));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
            }
        }
    }
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, Tiles::blocks) void multistage(
    const T* Q, const T* K, const T* V, T* O, float* LSE, flash::TileOrder order, int group,
    int N_q, int N_kv, float scale_log2, bool causal) {
    constexpr int d = Tiles::d, Br = Tiles::Br, threads = Tiles::threads, slots = Tiles::slots,
                  ahead = Tiles::ahead;
    // the lane's columns in a C fragment are 2t and 2t + 1, its rows in the tile of Q
    const int t = threadIdx.x % 4;
    // row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + threadIdx.x % 32 / 4;
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x < slots) {
        // full: every thread arrives by its own copies
        flash::mbarrier_init(&smem.full[threadIdx.x], threads);
        // empty: every thread arrives when it is through with the tile
        flash::mbarrier_init(&smem.empty[threadIdx.x], threads);
    }
    __syncthreads(); // the barriers are there for all

    const auto [head, tile] = flash::tile_of(blockIdx.x, order);
    const int i0 = tile * Br;
    const int64_t first_row = int64_t{head} * N_q + i0;
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
    uint32_t Q_reg[d / 16][M][4];  // A fragments: 16 rows x 16 columns each
    int lazy_until = Bc;           // keys; in the first tile every m is raised

    const auto start_tile = [&](int j0) {
        const int slot = j0 / Bc % slots, round = j0 / Bc / slots;
        // in round 0 there is nothing to wait for
        flash::mbarrier_wait(&smem.empty[slot], (round + 1) % 2);
        const int64_t from = (int64_t{head / group} * N_kv + j0) * d;
        flash::start_tile<d, Bc, threads>(smem.K[slot], K + from, N_kv - j0);
        flash::start_tile<d, Bc, threads>(smem.V[slot], V + from, N_kv - j0);
        // when all copies of this thread have landed
        flash::cp_async_mbarrier_arrive(&smem.full[slot]);
    };
    if (keys > 0) {
        flash::start_tile<d, Br, threads>(smem.Q, Q + first_row * d, rows);
    }
    for (int j0 = 0; j0 < min(ahead, keys); j0 += Bc) {
        start_tile(j0); // the first one's arrival is that of Q, too
    }

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int slot = j0 / Bc % slots, round = j0 / Bc / slots;
        flash::mbarrier_wait(&smem.full[slot], round % 2);
        if (j0 + ahead < keys) {
            start_tile(j0 + ahead);
        }
        if (d <= 64 && j0 == 0) {
#pragma unroll
            for (int k = 0; k < d / 16; ++k) {
                load_Q<Tiles>(Q_reg[k], smem.Q, k);
            }
        }
        // S, then P in its place; what to add to its exponents
        float S_reg[M][Bc / 8][4], shift[M][2] = {};
        if (j0 >= first_row_keys + (row0 | (warp_rows - 1))) {
            // beyond the mask for all rows of this warp: it only copies for the others
        } else if (j0 < lazy_until || j0 + Bc > whole) { // as in lazy_maximum: first m, then P V
            multiply_QK<T, Tiles>(S_reg, m_reg, Q_reg, smem.Q, smem.K[slot]);
            if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
                for (int i = 0; i < M; ++i) {
                    flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
                }
            }
            if (j0 == 0 || !flash::all_negative(S_reg)) {
                flash::raise_maximum<false, T>(S_reg, shift, m_reg, l_reg, O_reg, scale_log2,
                                               j0 == 0);
                // two of the lane's scores
                const float low = fminf(S_reg[0][0][0] * scale_log2 + shift[0][0],
                                        S_reg[1][0][2] * scale_log2 + shift[1][1]);
                lazy_until = __any_sync(0xffffffff, low < flash::far_below<T>) ? keys : lazy_until;
            }
            exponentials<T>(S_reg, shift, scale_log2);
            multiply_PV<T, Tiles>(O_reg, l_reg, S_reg, smem.V[slot]);
        } else { // first P V, then the question whether m was large enough
            multiply_QK<T, Tiles>(S_reg, m_reg, Q_reg, smem.Q, smem.K[slot]);
            exponentials<T>(S_reg, shift, scale_log2);
            l_reg[0][1] = l_reg[0][3] = l_reg[1][1] = l_reg[1][3] = 0;
            multiply_PV<T, Tiles>(O_reg, l_reg, S_reg, smem.V[slot]);
            // the largest
            const float sum =
                fmaxf(fmaxf(l_reg[0][1], l_reg[0][3]), fmaxf(l_reg[1][1], l_reg[1][3]));
            if (__any_sync(0xffffffff, sum >= flash::limit<T>)) {
                // it was overwritten by P
                multiply_QK<T, Tiles>(S_reg, m_reg, Q_reg, smem.Q, smem.K[slot]);
                flash::raise_maximum<true, T>(S_reg, shift, m_reg, l_reg, O_reg, scale_log2, false);
                multiply_PV<T, Tiles>(O_reg, l_reg, S_reg, smem.V[slot]);
                lazy_until = keys;
            }
        }
        if constexpr (slots > 2) {
            __syncwarp(); // redundant: for ptxas alone, see docs/notes_mma.md on spills
        }
        flash::mbarrier_arrive(&smem.empty[slot]);
    }

#pragma unroll
    for (int r = 0; r < 2 * M; ++r) {
        const int row = row0 + 8 * r;
        if (row < rows) {
            const int c = r % 2 * 2; // the row's elements in C fragments: c and c + 1
            const float l = l_reg[r / 2][c];
            const float normalise = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(O + row * d + 8 * n + 2 * t) = flash::pack<T>(
                    O_reg[r / 2][n][c] * normalise, O_reg[r / 2][n][c + 1] * normalise);
            }
            if (t == 0) {
                LSE[row] =
                    (m_reg[r / 2][r % 2] * scale_log2 - flash::window) * flash::ln_2 + logf(l);
            }
        }
    }
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Tiles::Br));
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    const int heads = blocks / Tr;
    const int places =
        flash::resident_blocks(multistage<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const flash::TileOrder order{heads, std::clamp(2 * places / Tr, 1, heads), Tr}; // block_order
    flash::launch(multistage<T, Tiles>, blocks, Tiles::threads, sizeof(Shared<Tiles>), Q, K, V, O,
                  LSE, order, group, N_q, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        // two small blocks fill an SM as well, and are enough for short heads
        if constexpr (d == 128) {
            using Large = Tiles<d, 8>;
            if (p.q_len >= 2048 && sizeof(Shared<Large>) <= flash::max_shared_memory_per_block()) {
                return run<T, Large>(p, Q, K, V, O, LSE);
            }
        }
        run<T, Tiles<d, 4>>(p, Q, K, V, O, LSE);
    });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace multistage
