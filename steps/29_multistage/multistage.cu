// multistage: At d = 128, too, there is room for four slots, because eight warps share each tile.
//
// The idea: tile_barriers needs four slots, and at d = 128 a block has two: two blocks share an SM,
// and each keeps K and V for itself. Here one block of eight warps fills the SM and keeps them
// once:
//
//      tile_barriers   Q  K K V V | Q  K K V V    two blocks of 97 KiB, one tile ahead
//      here            Q Q  K K K K  V V V V      one block of 193 KiB, two tiles ahead
//
//   - Each tile is copied once for 256 queries, in place of once for 128.
//   - Eight warps that meet before each tile are slower than four: all of the SM waits for the
//     slowest one. Warps that wait for their tile need no second block to work meanwhile.
//   - Nobody waits for a warp that is quick, either. So one that sees nothing of a tile under a
//     causal mask leaves it out. It still copies its part, and arrives.
//
// Several tiles in flight behind cp.async are CUTLASS's "multistage" pipeline (2020).
// Parent: tile_barriers. New: a block's size is an argument of the kernel, Tiles; the launcher
// chooses it; `beyond`.
// Look at: what a warp does for a tile that it does not compute. Gained: speed at d = 128, for long
// heads, where a block may have 193 KiB. Counter: bytes loaded.
#include "steps/29_multistage/multistage.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
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
    static constexpr int d = d_;
    static constexpr int warps = warps_;
    static constexpr int threads = 32 * warps;
    static constexpr int Br = warp_rows * warps;                 // queries
    static constexpr int slots = d == 128 && warps == 4 ? 2 : 4; // for tiles of K, and of V
    static constexpr int ahead = slots / 2 * Bc; // keys: so far in advance a tile is copied
    static constexpr int blocks = d == 32 ? 3 : 8 / warps; // per SM
};

/// Dynamic shared memory: Q, slots for tiles of K and V, and two barriers for each slot.
template <class Tiles> struct Shared {
    flash::SwizzledTile<Tiles::d, Tiles::Br> Q;
    flash::SwizzledTile<Tiles::d, Bc> K[Tiles::slots], V[Tiles::slots];
    uint64_t full[Tiles::slots], empty[Tiles::slots];
};

/// S_reg = Q K^T - m: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys
/// each.
template <class T, int d, int Br>
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

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, Tiles::blocks) void multistage(
    const T* Q, const T* K, const T* V, T* O, float* LSE, flash::TileOrder order, int group,
    int N_q, int N_kv, float scale_log2, bool causal) {
    constexpr int d = Tiles::d;
    constexpr int Br = Tiles::Br;
    constexpr int threads = Tiles::threads;
    constexpr int slots = Tiles::slots;
    constexpr int ahead = Tiles::ahead;
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + g;
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

    const auto start_KV = [&](int j0) {
        const int slot = j0 / Bc % slots;
        const int round = j0 / Bc / slots;
        // in round 0 there is nothing to wait for
        flash::mbarrier_wait(&smem.empty[slot], (round + 1) % 2);
        flash::start_tile<threads>(smem.K[slot], K + int64_t{j0} * d, N_kv - j0);
        flash::start_tile<threads>(smem.V[slot], V + int64_t{j0} * d, N_kv - j0);
        // when all copies of this thread have landed
        flash::cp_async_mbarrier_arrive(&smem.full[slot]);
    };
    if (keys > 0) {
        flash::start_tile<threads>(smem.Q, Q, rows);
    }
    for (int j0 = 0; j0 < min(ahead, keys); j0 += Bc) {
        start_KV(j0); // the first one's arrival is that of Q, too
    }

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int slot = j0 / Bc % slots;
        const int round = j0 / Bc / slots;
        flash::mbarrier_wait(&smem.full[slot], round % 2); // all copies of this tile have landed
        if (j0 + ahead < keys) {
            start_KV(j0 + ahead);
        }

        float S_reg[M][Bc / 8][4]; // S, then P in its place
        // an edge: some row does not see the whole tile
        const bool edge = j0 + Bc > whole;
        const auto careful_tile = [&] { // as in lazy_maximum: first m, then P V
            multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[slot]);
            if (edge) {
                for (int i = 0; i < M; ++i) {
                    flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
                }
            }
            if (j0 == 0 || !flash::all_negative(S_reg)) {
                flash::raise_maximum<T>(S_reg, m_reg, l_reg, O_reg, scale_log2, j0 == 0);
            }
            flash::exponentials<T>(S_reg, scale_log2);
            multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[slot]);
        };
        // beyond the mask for all rows of this warp, which then only copies for the others
        const bool beyond = j0 >= first_row_keys + (row0 | (warp_rows - 1));
        if (beyond) {
            // nothing to compute: the warp has copied its part, and arrives below
        } else if (j0 == 0 || edge || repaired) {
            careful_tile();
        } else { // first P V, then the question whether m was large enough
            multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[slot]);
            flash::exponentials<T>(S_reg, scale_log2);
            l_reg[0][1] = l_reg[0][3] = l_reg[1][1] = l_reg[1][3] = 0;
            multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[slot]);
            const float largest_sum =
                fmaxf(fmaxf(l_reg[0][1], l_reg[0][3]), fmaxf(l_reg[1][1], l_reg[1][3]));
            if (__any_sync(0xffffffff, largest_sum >= flash::limit<T>)) {
                // take it back: S again, which P has overwritten, and the same weights, subtracted
                multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[slot]);
                flash::exponentials<T, -1>(S_reg, scale_log2);
                multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[slot]);
                careful_tile();
                repaired = true;
            }
        }
        __syncwarp(); // redundant: for sm_90, ptxas 13.0 spills 16 bytes with it, 112 without
        flash::mbarrier_arrive(&smem.empty[slot]);
    }

#pragma unroll
    for (int i = 0; i < M; ++i) {
        const float l[2] = {l_reg[i][0], l_reg[i][2]};
        const float m[2] = {flash::ln_2 * (m_reg[i][0] * scale_log2 - flash::window<T>),
                            flash::ln_2 * (m_reg[i][1] * scale_log2 - flash::window<T>)};
        flash::store_O_and_LSE(O, LSE, O_reg[i], m, l, row0 + 16 * i, rows);
    }
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const auto kernel = multistage<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, sizeof(Shared<Tiles>));
    const flash::TileOrder order =
        flash::order_in_waves(p, p.heads, flash::ceil_div(N_q, Tiles::Br), places);
    flash::launch(kernel, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>), Q, K, V, O, LSE,
                  order, group, N_q, N_kv, p.scale * flash::log2_e, p.causal);
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
