// Rung 20: persistent blocks. A block does not end with its tile of Q; it takes the next one.
//
// The idea: on rung 19 an SM holds one block, so it idles while that block ends and the next begins: barriers, Q and
// the first K on their way from memory, O on its way back. Here there are only as many blocks as SMs. The producer
// draws the number of the next tile from a counter in global memory as soon as it has started the last copies of this
// one, and fetches Q into a second buffer; K and V go on through the same ring. The consumers find work when they
// return.
//
// Who is done early draws more often, so the order of rung 14, longest tiles first in waves, works as before.
// Against rung 19: a loop around each role, two buffers for Q (if d <= 128), and the counter.
// Look at: how the counter returns to 0 without anybody setting it.
// Gained: time at short N, if d <= 128. At d = 64 and long N it loses some, for a reason that we do not know.
// First published: Gupta, Stuart and Owens, "A study of persistent threads style GPU programming" (2012).
#include "steps/20_persistent_blocks/persistent_blocks.hpp"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/mbarrier.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/swizzle.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"

namespace step20 {
namespace {

constexpr int slots = 2;                                   // tiles of K, and tiles of V, that are in shared memory,
template <int d> constexpr int Q_slots = d == 256 ? 1 : 2; // and of Q
constexpr int warpgroup = 128;                             // threads
constexpr int warpgroup_Br = 64;                           // queries of a warpgroup

// Consumers, the keys of a tile, and each thread's registers. All there is to distribute is what the block starts with:
// 65536 / threads for each thread, rounded down to a multiple of 8.
template <int d> constexpr int consumers = d == 64 ? 4 : 2;
template <int d> constexpr int Bc = d == 128 ? 128 : 64;
template <int d> constexpr int consumer_registers = d == 64 ? 112 : 240;
constexpr int producer_registers = 24;
template <int d> constexpr int threads = warpgroup*(consumers<d> + 1);
template <int d> constexpr int registers = 65536 / threads<d> / 8 * 8;

/// Weights are less than 2^headroom: by so much may scores rise before m follows.
constexpr float headroom = 8;

template <int d> constexpr int Br = consumers<d>* warpgroup_Br;       // queries
template <int d> using Q_tile = flash::SwizzledTile<d, warpgroup_Br>; // of one warpgroup, and its O
template <int d> using KV_tile = flash::SwizzledTile<d, Bc<d>>;

/// The tiles of Q of all heads, numbered in the order in which they are to be computed: wave by wave, in a wave the
/// last tile of each head first.
struct Order {
    int heads, wave_heads, Tr;
};
struct Tile {
    int head, i0;
};
template <int d> __device__ Tile tile_of(int number, Order order) {
    const int wave = number / (order.wave_heads * order.Tr);
    const int first_head = wave * order.wave_heads;
    const int wave_size = min(order.wave_heads, order.heads - first_head); // the last wave may have fewer heads
    const int in_wave = number - first_head * order.Tr;
    return {first_head + in_wave % wave_size, (order.Tr - 1 - in_wave / wave_size) * Br<d>};
}

/// Counters from which blocks draw numbers of tiles; each launch uses the next one, since launches may overlap. Every
/// tile is drawn once, but the first of each block are given, so each block draws one number that is too large: in all
/// as many draws as tiles. atomicInc returns to 0 after as many: the counter is ready for another launch.
constexpr int counters = 64;
__device__ unsigned next_tile[counters];

/// Hides keys. Row g of the warp sees `visible` keys from the tile of K on, row g + 8 by causality 8 more, and no row
/// more than `N_left`.
template <int n_tiles> __device__ void mask(float (&S_reg)[n_tiles][4], int N_left, int visible) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 >= min(N_left, visible + c / 2 * 8)) {
                S_reg[n][c] = -INFINITY;
            }
        }
    }
}

/// Raises m where a score asks for it, as on rung 16: if in the warp some weight would not be less than 2^headroom,
/// every row's m becomes its running maximum. Then `keep` is what remains of l and O, of which l is done here.
template <int n_tiles>
__device__ bool raise_maximum(const float (&S_reg)[n_tiles][4], float (&m_reg)[2], float (&l_reg)[2], float (&keep)[2],
                              float scale_log2) {
    float top[4] = {S_reg[0][0], S_reg[0][1], S_reg[0][2], S_reg[0][3]}; // four short chains, not one long one
#pragma unroll
    for (int n = 1; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            top[c] = fmaxf(top[c], S_reg[n][c]);
        }
    }
    const float row_top[2] = {fmaxf(top[0], top[1]) * scale_log2, fmaxf(top[2], top[3]) * scale_log2};
    if (!__any_sync(0xffffffff, row_top[0] > m_reg[0] + headroom || row_top[1] > m_reg[1] + headroom)) {
        return false;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) { // rows g and g + 8
        const float m_new = fmaxf(m_reg[r], flash::row_max(row_top[r]));
        keep[r] = flash::fast_exp2(m_reg[r] - m_new);
        m_reg[r] = m_new;
        l_reg[r] *= keep[r];
    }
    return true;
}

template <int n_tiles> __device__ void rescale(float (&O_reg)[n_tiles][4], const float (&keep)[2]) {
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            O_reg[n][c] *= keep[c / 2];
        }
    }
}

/// S becomes P, rounded, as A fragments of 16 rows x 16 keys: two C fragments side by side. l adds up the lane's own
/// part of the row sums.
template <class T, int k_tiles>
__device__ void exponentials(uint32_t (&P_reg)[k_tiles][4], float (&S_reg)[2 * k_tiles][4], const float (&m_reg)[2],
                             float (&l_reg)[2], float scale_log2) {
#pragma unroll
    for (int n = 0; n < 2 * k_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale_log2, -m_reg[c / 2]));
            l_reg[c / 2] += S_reg[n][c];
        }
        P_reg[n / 2][n % 2 * 2] = flash::pack<T>(S_reg[n][0], S_reg[n][1]);
        P_reg[n / 2][n % 2 * 2 + 1] = flash::pack<T>(S_reg[n][2], S_reg[n][3]);
    }
}

/// Starts S = Q K^T. k16 steps are 32 bytes apart in a panel of 64 columns, and panels a whole tile.
template <class T, int d> __device__ void start_QK(float (&S_reg)[Bc<d> / 8][4], uint64_t Q_desc, uint64_t K_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        const int panel = 128 * (k / 4);
        flash::wgmma_m64k16<T, Bc<d>>(S_reg, flash::advance(Q_desc, panel * warpgroup_Br + 32 * (k % 4)),
                                      flash::advance(K_desc, panel * Bc<d> + 32 * (k % 4)), k > 0);
    }
    flash::wgmma_commit();
}

/// Starts O += P V. 16 rows of V are 2048 bytes.
template <class T, int d>
__device__ void start_PV(float (&O_reg)[d / 8][4], const uint32_t (&P_reg)[Bc<d> / 16][4], uint64_t V_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc<d> / 16; ++k) {
        flash::wgmma_m64k16<T, d, true>(O_reg, P_reg[k], flash::advance(V_desc, 2048 * k));
    }
    flash::wgmma_commit();
}

template <class T, int d>
__global__ __launch_bounds__(threads<d>, 1) void persistent_blocks(const __grid_constant__ flash::TensorMap Q,
                                                                   const __grid_constant__ flash::TensorMap K,
                                                                   const __grid_constant__ flash::TensorMap V,
                                                                   const __grid_constant__ flash::TensorMap O,
                                                                   float* LSE, Order order, int counter, int group,
                                                                   int N_q, int N_kv, float scale_log2, bool causal) {
    constexpr int Br = step20::Br<d>;
    constexpr int Bc = step20::Bc<d>;
    char* Q_smem = flash::dynamic_shared<char>(); // a tile per consumer, in each slot
    char* K_smem = Q_smem + Q_slots<d> * consumers<d> * Q_tile<d>::bytes;
    char* V_smem = K_smem + slots * KV_tile<d>::bytes;
    __shared__ uint64_t Q_full[Q_slots<d>], Q_empty[Q_slots<d>];
    __shared__ uint64_t K_full[slots], K_empty[slots], V_full[slots], V_empty[slots];
    __shared__ int numbers[Q_slots<d>]; // of the tiles in the slots
    const int tiles = order.heads * order.Tr;

    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots<d>; ++slot) {
            flash::mbarrier_init(&Q_full[slot], 1);
            flash::mbarrier_init(&Q_empty[slot], consumers<d>); // one arrival per warpgroup
        }
        for (int slot = 0; slot < slots; ++slot) {
            flash::mbarrier_init(&K_full[slot], 1);
            flash::mbarrier_init(&V_full[slot], 1);
            flash::mbarrier_init(&K_empty[slot], 4 * consumers<d>); // one arrival per warp
            flash::mbarrier_init(&V_empty[slot], 4 * consumers<d>);
        }
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all

    const int role = threadIdx.x / warpgroup;
    static_assert(warpgroup * (consumers<d> * consumer_registers<d> + producer_registers) <= threads<d> * registers<d>);
    if (role == consumers<d>) { // the producer
        flash::give_registers<producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            int slot = 0, phase = 0; // of `full`; `empty` is one behind, so that the first waits fall through
            int Q_slot = 0, Q_phase = 0;
            for (int number = blockIdx.x;; number = gridDim.x + atomicInc(&next_tile[counter], tiles - 1)) {
                flash::mbarrier_wait(&Q_empty[Q_slot], Q_phase ^ 1); // O, in its place, has been stored
                numbers[Q_slot] = number;
                if (number >= tiles) {
                    flash::mbarrier_arrive(&Q_full[Q_slot]); // the consumers shall see that there is no more
                    break;
                }
                const auto [head, i0] = tile_of<d>(number, order);
                const int keys = causal ? min(N_kv, i0 + (N_kv - N_q) + Br) : N_kv;
                flash::mbarrier_expect_tx(&Q_full[Q_slot], consumers<d> * Q_tile<d>::bytes);
                for (int w = 0; w < consumers<d>; ++w) {
                    flash::tma_load<4>(Q_smem + (Q_slot * consumers<d> + w) * Q_tile<d>::bytes, Q,
                                       {0, i0 + w * warpgroup_Br, 0, head}, &Q_full[Q_slot]);
                }
                Q_slot = (Q_slot + 1) % Q_slots<d>;
                Q_phase ^= Q_slot == 0;
                for (int j0 = 0; j0 < keys; j0 += Bc) {
                    flash::mbarrier_wait(&K_empty[slot], phase ^ 1); // all warps have read the tile before
                    flash::mbarrier_expect_tx(&K_full[slot], KV_tile<d>::bytes);
                    flash::tma_load<4>(K_smem + slot * KV_tile<d>::bytes, K, {0, j0, 0, head / group}, &K_full[slot]);
                    flash::mbarrier_wait(&V_empty[slot], phase ^ 1); // likewise
                    flash::mbarrier_expect_tx(&V_full[slot], KV_tile<d>::bytes);
                    flash::tma_load<4>(V_smem + slot * KV_tile<d>::bytes, V, {0, j0, 0, head / group}, &V_full[slot]);
                    slot = (slot + 1) % slots;
                    phase ^= slot == 0;
                }
            }
        }
        return;
    }

    flash::take_registers<consumer_registers<d>>();
    const int lane = threadIdx.x % 32;
    const int g = lane / 4; // the lane's place in a fragment: row g and g + 8 of A and C,
    const int t = lane % 4; // columns 2t and 2t + 1
    const int tile_row = threadIdx.x % warpgroup / 32 * 16 + g; // the lane's rows in the warpgroup's tile: this, + 8
    const int row0 = role * warpgroup_Br + tile_row;            // and in the block's

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem + role * Q_tile<d>::bytes, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(K_smem, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(V_smem, 128 * Bc, 1024);

    int slot = 0, phase = 0;
    int Q_slot = 0, Q_phase = 0;
    while (true) {
        flash::mbarrier_wait(&Q_full[Q_slot], Q_phase); // Q and the tile's number have landed
        if (numbers[Q_slot] >= tiles) {
            break;
        }
        const auto [head, i0] = tile_of<d>(numbers[Q_slot], order);
        // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never loaded.
        const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
        const int keys = causal ? min(N_kv, first_row_keys + Br - 1) : N_kv;
        const int whole = causal ? min(N_kv, first_row_keys + role * warpgroup_Br) : N_kv; // keys that all its rows see
        const int slot_bytes = Q_slot * consumers<d> * Q_tile<d>::bytes;
        const uint64_t Q_now = flash::advance(Q_desc, slot_bytes);
        char* O_smem = Q_smem + slot_bytes + role * Q_tile<d>::bytes;

        float m_reg[2] = {-FLT_MAX, -FLT_MAX}; // of rows g and g + 8, in units of log2: scale * log2(e) * a score
        float l_reg[2] = {};
        float keep[2];
        float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

        for (int j0 = 0; j0 < keys; j0 += Bc) {
            const int tile = slot * KV_tile<d>::bytes;
            float S_reg[Bc / 8][4];                     // C fragments: 16 rows x 8 keys each
            flash::mbarrier_wait(&K_full[slot], phase); // the tile of K has landed
            start_QK<T, d>(S_reg, Q_now, flash::advance(K_desc, tile));
            flash::wgmma_wait<0>(S_reg);
            if (lane == 0) {
                flash::mbarrier_arrive(&K_empty[slot]); // this warp's product no longer reads the tile of K
            }

            if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
                mask(S_reg, N_kv - j0, first_row_keys + row0 - j0);
            }
            if (raise_maximum(S_reg, m_reg, l_reg, keep, scale_log2)) {
                rescale(O_reg, keep);
            }
            uint32_t P_reg[Bc / 16][4];
            exponentials<T>(P_reg, S_reg, m_reg, l_reg, scale_log2);

            flash::mbarrier_wait(&V_full[slot], phase); // the tile of V has landed
            start_PV<T, d>(O_reg, P_reg, flash::advance(V_desc, tile));
            flash::wgmma_wait<0>(O_reg);
            if (lane == 0) {
                flash::mbarrier_arrive(&V_empty[slot]); // this warp's product no longer reads the tile of V
            }
            slot = (slot + 1) % slots;
            phase ^= slot == 0;
        }

        // O goes to shared memory, to where the warpgroup's Q was, and TMA writes the rows that exist.
        flash::named_barrier_sync(1 + role, warpgroup); // no warp's product still reads Q
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float l = flash::row_sum(l_reg[r]);
            const float normalise = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(O_smem + Q_tile<d>::offset(tile_row + 8 * r, n) + 4 * t) =
                    flash::pack<T>(O_reg[n][2 * r] * normalise, O_reg[n][2 * r + 1] * normalise);
            }
            const int row = i0 + row0 + 8 * r;
            if (t == 0 && row < N_q) {
                LSE[int64_t{head} * N_q + row] = l == 0 ? -INFINITY : m_reg[r] * flash::ln_2 + logf(l);
            }
        }
        flash::fence_proxy_async();                     // TMA sees what this thread has written,
        flash::named_barrier_sync(1 + role, warpgroup); // and what the warpgroup's others have
        if (threadIdx.x % warpgroup == 0) {
            flash::tma_store<4>(O, {0, i0 + role * warpgroup_Br, 0, head}, O_smem);
            flash::bulk_commit();
            flash::bulk_wait_read<0>(); // the tile has been read: its place is free, and the block may leave
            flash::mbarrier_arrive(&Q_empty[Q_slot]);
        }
        Q_slot = (Q_slot + 1) % Q_slots<d>;
        Q_phase ^= Q_slot == 0;
    }
}

/// (H, N, d) as TMA sees it, {64, N, d / 64, H}, so that a tile arrives as panels of 64 columns, 128 bytes wide.
template <int d, class T> flash::TensorMap tensor_map(const T* tensor, int64_t heads, int64_t N, int rows) {
    return flash::make_tensor_map<4>(tensor, {64, N, d / 64, heads}, {d, 64, N * d}, {64, rows, d / 64, 1});
}

std::atomic<unsigned> launches = 0;

template <class T, int d> void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads"); // query heads to one K/V head
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br<d>));
    const int tiles = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    constexpr int smem_bytes = (Q_slots<d> * consumers<d> * Q_tile<d>::bytes) + 2 * slots * KV_tile<d>::bytes;
    const int places = flash::resident_blocks(persistent_blocks<T, d>, threads<d>, smem_bytes);
    const Order order{heads, std::clamp(2 * places / Tr, 1, heads), Tr};
    flash::launch(persistent_blocks<T, d>, std::min(places, tiles), threads<d>, smem_bytes,
                  tensor_map<d>(Q, heads, N_q, warpgroup_Br), tensor_map<d>(K, heads / group, N_kv, Bc<d>),
                  tensor_map<d>(V, heads / group, N_kv, Bc<d>), tensor_map<d>(O, heads, N_q, warpgroup_Br), LSE, order,
                  static_cast<int>(launches++ % counters), group, N_q, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T> void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*, const flash::Half*, flash::Half*,
                        float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*, const flash::Bfloat16*,
                        flash::Bfloat16*, float*);

} // namespace step20
