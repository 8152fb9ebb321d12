// wgmma_tma: Hopper's copy engine (TMA) brings whole tiles, and its tensor cores (wgmma) read
// them in shared memory.
//
// The idea: in async_copy to multistage every warp fetches its operands itself: cp.async 16 bytes
// at a time, ldmatrix once per fragment, and mma.sync waits for both. mma.sync reaches two thirds
// of what the tensor cores of Hopper can do. Here
//   - one thread asks TMA for a tile, and an mbarrier tells when it has landed, swizzled, with
//     zeros beyond the tensor;
//   - four warps together, a warpgroup, ask wgmma for 64 rows of a product. It takes K and V from
//     shared memory, and needs registers only for what it computes. P goes back in as it came out:
//     C fragments are A fragments.
//
// A block is one warpgroup, and does one thing after the other: S, softmax, O. Several blocks share
// an SM, and while one computes exponentials, another's products run.
// Against fixed_maximum: no copies by threads, no ldmatrix, no addresses; O leaves through TMA,
// too. The maximum is raised as in lazy_maximum, by need, but S is scaled afterwards: the products
// are no longer ours to begin with -m.
// Look at: who waits for whom when a tile of K is replaced, and at the descriptors.
// Gained: the other third of the tensor cores. Counter: wgmma instructions in place of mma.
#include "steps/31_wgmma_tma/wgmma_tma.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace wgmma_tma {
namespace {

constexpr int threads = 128; // one warpgroup
constexpr int Br = 64;       // queries

// Keys: as many as leave room on an SM, for registers and shared memory, for so many blocks.
template <int d> constexpr int Bc = d == 256 ? 80 : 96;
template <int d> constexpr int blocks_per_sm = d == 64 ? 4 : d == 128 ? 3 : 2;

template <int d> using Q_tile = flash::SwizzledTile<d, Br>; // and O's
template <int d> using KV_tile = flash::SwizzledTile<d, Bc<d>>;

struct Task {
    flash::TensorMap Q, K, V, O;
    float* LSE;
    flash::TileOrder order;
    int group, N_q, N_kv; // group: query heads to one K/V head
    float scale_log2;
    bool causal;
};

/// How many keys query i sees: key j if j <= i + (N_kv - N_q).
__device__ int visible_keys(const Task& task, int i) {
    return task.causal ? i + (task.N_kv - task.N_q) + 1 : task.N_kv;
}

/// S becomes P, and l adds up the lane's own part of the row sums. m is raised where a score asks
/// for it, as in lazy_maximum: if in the warp some weight would not be less than 2^headroom, every
/// row's m becomes its running maximum. Then the result is true, and `keep` is what remains of l
/// and O, of which l is done here. `low`: in some row of the warp m + headroom is less than 0, so
/// that the cheaper maximum would not tell whether a score is above it.
template <int n_tiles>
__device__ bool softmax(float (&S_reg)[n_tiles][4], float (&m_reg)[2], float (&l_reg)[2],
                        float (&keep)[2], bool& low, float scale_log2) {
    constexpr float headroom = 15; // fp16 ends at 2^16, and O needs room for V
    float top[2];                  // of rows g and g + 8
    if (low) {
        flash::lane_max(S_reg, top);
    } else {
        flash::lane_max_if_positive(S_reg, top);
    }
    const bool raise = __any_sync(0xffffffff, top[0] * scale_log2 > m_reg[0] + headroom ||
                                                  top[1] * scale_log2 > m_reg[1] + headroom);
    if (raise) {
        for (int r = 0; r < 2; ++r) {
            const float m_new = fmaxf(m_reg[r], flash::row_max(top[r] * scale_log2));
            keep[r] = flash::fast_exp2(m_reg[r] - m_new);
            m_reg[r] = m_new;
            l_reg[r] *= keep[r];
        }
        low = __any_sync(0xffffffff, m_reg[0] < -headroom || m_reg[1] < -headroom);
    }
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale_log2, -m_reg[c / 2]));
            l_reg[c / 2] += S_reg[n][c];
        }
    }
    return raise;
}

/// Starts S = Q K^T. k16 steps are 32 bytes apart in a panel of 64 columns, and panels a whole
/// tile.
template <class T, int d>
__device__ void start_QK(float (&S_reg)[Bc<d> / 8][4], uint64_t Q_desc, uint64_t K_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        const int panel = 128 * (k / 4);
        flash::wgmma_m64k16<T, Bc<d>>(S_reg, flash::advance(Q_desc, panel * Br + 32 * (k % 4)),
                                      flash::advance(K_desc, panel * Bc<d> + 32 * (k % 4)), k > 0);
    }
    flash::wgmma_commit();
}

/// Starts O += P V. 16 rows of V are 2048 bytes.
template <class T, int d>
__device__ void start_PV(float (&O_reg)[d / 8][4], const uint32_t (&P_reg)[Bc<d> / 16][4],
                         uint64_t V_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc<d> / 16; ++k) {
        flash::wgmma_m64k16<T, d, true>(O_reg, P_reg[k], flash::advance(V_desc, 2048 * k));
    }
    flash::wgmma_commit();
}

template <class T, int d>
__global__ __launch_bounds__(threads,
                             blocks_per_sm<d>) void wgmma_tma(const __grid_constant__ Task task) {
    constexpr int Bc = wgmma_tma::Bc<d>;
    char* Q_smem = flash::dynamic_shared<char>();
    char* K_smem = Q_smem + Q_tile<d>::bytes;
    char* V_smem = K_smem + KV_tile<d>::bytes;
    __shared__ uint64_t Q_landed, K_landed, V_landed;

    const flash::Tile tile = flash::tile_of(blockIdx.x, task.order);
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; // the lane's rows: this, and + 8
    const int i0 = tile.i * Br;
    // tiles beyond the last query's are never loaded
    const int keys = visible_keys(task, min(i0 + Br, task.N_q) - 1);
    const int whole = visible_keys(task, i0); // keys that all of the 64 rows see
    const int KV_head = tile.head / task.group;

    if (threadIdx.x == 0) {
        flash::mbarrier_init(&Q_landed, 1);
        flash::mbarrier_init(&K_landed, 1);
        flash::mbarrier_init(&V_landed, 1);
        flash::fence_mbarrier_init();
        if (keys > 0) {
            flash::mbarrier_expect_tx(&Q_landed, Q_tile<d>::bytes);
            flash::tma_load<4>(Q_smem, task.Q, {0, i0, 0, tile.head}, &Q_landed);
            flash::mbarrier_expect_tx(&K_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(K_smem, task.K, {0, 0, 0, KV_head}, &K_landed);
            flash::mbarrier_expect_tx(&V_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(V_smem, task.V, {0, 0, 0, KV_head}, &V_landed);
        }
    }
    __syncthreads(); // the barriers are there for all

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc
    // rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(K_smem, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(V_smem, 128 * Bc, 1024);

    // of rows g and g + 8, in units of log2: scale * log2(e) * a score
    float m_reg[2] = {-FLT_MAX, -FLT_MAX};
    float l_reg[2] = {};
    float keep[2];
    bool low = true;
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    if (keys > 0) {
        flash::mbarrier_wait(&Q_landed, 0);
    }
    for (int j0 = 0, phase = 0; j0 < keys; j0 += Bc, phase ^= 1) {
        float S_reg[Bc / 8][4]; // C fragments: 16 rows x 8 keys each
        flash::mbarrier_wait(&K_landed, phase);
        start_QK<T, d>(S_reg, Q_desc, K_desc);
        flash::wgmma_wait<0>(S_reg);
        __syncthreads(); // no warp's product still reads the tile of K
        if (threadIdx.x == 0 && j0 + Bc < keys) {
            flash::mbarrier_expect_tx(&K_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(K_smem, task.K, {0, j0 + Bc, 0, KV_head}, &K_landed);
        }

        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (softmax(S_reg, m_reg, l_reg, keep, low, task.scale_log2)) {
            flash::scale_rows(O_reg, keep);
        }
        uint32_t P_reg[Bc / 16][4]; // A fragments: 16 rows x 16 keys each
        flash::pack_A<T>(P_reg, S_reg);

        flash::mbarrier_wait(&V_landed, phase);
        start_PV<T, d>(O_reg, P_reg, V_desc);
        flash::wgmma_wait<0>(O_reg);
        __syncthreads(); // no warp's product still reads the tile of V
        if (threadIdx.x == 0 && j0 + Bc < keys) {
            flash::mbarrier_expect_tx(&V_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(V_smem, task.V, {0, j0 + Bc, 0, KV_head}, &V_landed);
        }
    }

    // O goes to shared memory, to where Q was, and TMA writes the rows that exist.
    for (int r = 0; r < 2; ++r) {
        const float l = flash::row_sum(l_reg[r]);
        const float normalise = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            *reinterpret_cast<uint32_t*>(Q_smem + Q_tile<d>::offset(row + 8 * r, n) +
                                         threadIdx.x % 4 * 4) =
                flash::pack<T>(O_reg[n][2 * r] * normalise, O_reg[n][2 * r + 1] * normalise);
        }
        if (threadIdx.x % 4 == 0 && i0 + row + 8 * r < task.N_q) {
            task.LSE[int64_t{tile.head} * task.N_q + i0 + row + 8 * r] =
                m_reg[r] * flash::ln_2 + logf(l);
        }
    }
    flash::fence_proxy_async(); // TMA sees what this thread has written,
    __syncthreads();            // and what all others have
    if (threadIdx.x == 0) {
        flash::tma_store<4>(task.O, {0, i0, 0, tile.head}, Q_smem);
        flash::bulk_commit();
        flash::bulk_wait_read<0>(); // a block must not leave before its tile has been read
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    constexpr int smem_bytes = Q_tile<d>::bytes + 2 * KV_tile<d>::bytes; // 64 KiB at d = 128
    const int places = flash::resident_blocks(wgmma_tma<T, d>, threads, smem_bytes);
    // With a mask, waves as in block_order. Without one all blocks are equally long, so one head
    // comes after the other: blocks that run at the same time then read the same tiles of K and V,
    // and find them in L2.
    const flash::TileOrder order{heads, p.causal ? std::clamp(places / Tr, 1, heads) : 1, Tr};
    flash::launch(wgmma_tma<T, d>, blocks, threads, smem_bytes,
                  Task{flash::tile_map<Q_tile<d>>(Q, heads, N_q),
                       flash::tile_map<KV_tile<d>>(K, heads / group, N_kv),
                       flash::tile_map<KV_tile<d>>(V, heads / group, N_kv),
                       flash::tile_map<Q_tile<d>>(O, heads, N_q), LSE, order, group, N_q, N_kv,
                       p.scale * flash::log2_e, p.causal});
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*,
                        const flash::Half*, flash::Half*, float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*,
                        const flash::Bfloat16*, flash::Bfloat16*, float*);

} // namespace wgmma_tma
