// tile_barriers: A warp waits until its tile is there, and no longer for the rest of its block.
//
// The idea: __syncthreads() lets no warp begin a tile before all have left the one before. Here a
// tile of K and V has a slot of shared memory, one of four (of two at d = 128), and two mbarriers:
//
//      full[slot]     each thread's copies have landed       -> a warp may read the slot
//      empty[slot]    each thread is through with the tile   -> a warp may copy another into it
//
//   - Copies run two tiles ahead. A slot that is refilled was left a whole tile ago, so nearly
//     always nobody waits.
//   - No warp waits for the slowest of its block, so warps drift apart by two tiles. Then one of
//     them computes exponentials while another has products under way, and nobody had to arrange
//     that.
//
// Barriers in shared memory, at which arriving and waiting are separate, came with the A100 (2020).
// CUTLASS calls those of its pipelines for Hopper full and empty.
// Parent: fixed_maximum. New: two barriers per slot in place of one per block, and four slots in
// place of two buffers.
// Look at: which warp waits, and for what. Gained: a block meets once, and not before each tile.
// Counter: barriers. Two slots, all that two blocks per SM have room for at d = 128, are too few: a
// copy goes where the slowest warp still reads.
#include "steps/28a_tile_barriers/tile_barriers.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace tile_barriers {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// How many blocks an SM should have room for: a thread gets no more registers than that allows.
template <int d> constexpr int blocks_per_sm = d == 32 ? 3 : 2;

/// How many tiles of K, and of V, a block has room for. Two blocks must fit an SM.
template <int d> constexpr int slots_per_block = d == 128 ? 2 : 4;

/// Dynamic shared memory: Q, slots for tiles of K and V, and two barriers for each slot. 97 KiB at
/// d = 128, 81 at d = 64.
template <int d> struct Shared {
    flash::SwizzledTile<d, Br> Q;
    flash::SwizzledTile<d, Bc> K[slots_per_block<d>], V[slots_per_block<d>];
    uint64_t full[slots_per_block<d>], empty[slots_per_block<d>];
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
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void tile_barriers(
    const T* Q, const T* K, const T* V, T* O, float* LSE, flash::TileOrder order, int group,
    int N_q, int N_kv, float scale_log2, bool causal) {
    constexpr int slots = slots_per_block<d>;
    constexpr int ahead = slots / 2 * Bc; // keys: so far in advance a tile is copied
    const int g = threadIdx.x % 32 / 4;   // the lane's place in a fragment: rows g and g + 8 of C
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + g;
    auto& smem = *flash::dynamic_shared<Shared<d>>();
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
        if (j0 == 0 || edge || repaired) {
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

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const auto kernel = tile_barriers<T, d>;
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

} // namespace tile_barriers
