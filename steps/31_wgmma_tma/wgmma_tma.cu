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
//
// This is a new kernel, to be read whole. Of its parent, lazy_maximum, remain the loop over tiles
// and a maximum that is raised by need. There are no copies by threads, no ldmatrix and no
// addresses here; O leaves through TMA, too. S begins at 0: for -m, every register of S would have
// to be set first, because wgmma adds in place.
//
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
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace wgmma_tma {
namespace {

constexpr int warpgroup = 128; // threads: the whole block

template <int head_dim> struct Tiles {
    static constexpr int d = head_dim;
    static constexpr int Br = 64; // queries
    // Keys: as many as leave room on an SM, for registers and shared memory, for so many blocks.
    static constexpr int Bc = d == 256 ? 80 : 96;
    static constexpr int blocks_per_sm = d == 64 ? 4 : d == 128 ? 3 : 2;
    using Q = flash::SwizzledTile<d, Br>; // and O
    using KV = flash::SwizzledTile<d, Bc>;
};

template <class Tiles> struct Shared {
    typename Tiles::Q Q;
    typename Tiles::KV K, V;
    uint64_t Q_full, K_full, V_full; // mbarriers: the tile has landed
};

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

/// How many keys some of the queries from i0 to i1 - 1 see. Queries beyond the last see none.
__device__ int visible_keys(const Task& task, int i0, int i1) {
    return i0 < task.N_q ? visible_keys(task, min(i1, task.N_q) - 1) : 0;
}

/// What a lane knows of its two rows of S and O, which are rows g and g + 8 of its warp's. A weight
/// is 2 to the power of (S - m) scale_log2.
struct Rows {
    float m[2] = {-FLT_MAX, -FLT_MAX}; // a score as Q K^T has it, not scaled
    float l[2] = {};                   // the lane's own part of the row sums
    // One multiply-add makes the exponent: S scale_log2 - offset, with m scale_log2 as the offset.
    float offset[2] = {};
    // Where that is large in some row of the warp, its rounding would be larger than the exponents
    // are. There m comes off S first, and the offset is 0.
    bool far = true;
    // In some row of the warp m scale_log2 + headroom is less than 0, so that the cheaper maximum
    // would not tell whether a score is above it.
    bool low = true;
};

/// S becomes P, and l adds up its rows. m is raised where a score asks for it, as in lazy_maximum:
/// if in the warp some weight would not be less than 2^headroom, every row's m becomes its running
/// maximum. Then, and only then, the result is true and `keep` is set: to what remains of l, where
/// it is done here, and of O, where the caller does it.
template <int fragments>
__device__ bool softmax(float (&S_reg)[fragments][4], Rows& rows, float (&keep)[2],
                        float scale_log2) {
    constexpr float headroom = 15; // fp16 ends at 2^16, and O needs room for V
    constexpr float near = 4096;   // up to here an offset is rounded by 2^-13 at most
    float top[2];
    if (rows.low) {
        flash::lane_max(S_reg, top);
    } else {
        flash::lane_max_if_positive(S_reg, top);
    }
    const bool too_large = (top[0] - rows.m[0]) * scale_log2 > headroom ||
                           (top[1] - rows.m[1]) * scale_log2 > headroom;
    const bool raise = __any_sync(0xffffffff, too_large);
    if (raise) {
        for (int r = 0; r < 2; ++r) {
            const float m_new = fmaxf(rows.m[r], flash::row_max(top[r]));
            keep[r] = flash::fast_exp2((rows.m[r] - m_new) * scale_log2);
            rows.m[r] = m_new;
            rows.l[r] *= keep[r];
        }
        const float scaled[] = {rows.m[0] * scale_log2, rows.m[1] * scale_log2};
        rows.low = __any_sync(0xffffffff, scaled[0] < -headroom || scaled[1] < -headroom);
        rows.far = __any_sync(0xffffffff, fabsf(scaled[0]) > near || fabsf(scaled[1]) > near);
        rows.offset[0] = rows.far ? 0 : scaled[0];
        rows.offset[1] = rows.far ? 0 : scaled[1];
    }
    if (rows.far) { // near m, where weights are not 0, the difference is exact
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            for (int c = 0; c < 4; ++c) {
                S_reg[n][c] -= rows.m[c / 2];
            }
        }
    }
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            const int r = c / 2; // elements 0 and 1 are row g's, 2 and 3 row g + 8's
            S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale_log2, -rows.offset[r]));
            rows.l[r] += S_reg[n][c];
        }
    }
    return raise;
}

/// Starts S = Q K^T. A k16 step is 16 columns, 32 bytes of a row; a row of a panel has four.
template <class T, class Tiles>
__device__ void start_QK(float (&S_reg)[Tiles::Bc / 8][4], uint64_t Q_desc, uint64_t K_desc) {
    constexpr int Q_panel = 128 * Tiles::Br, K_panel = 128 * Tiles::Bc; // bytes
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tiles::d / 16; ++k) {
        const int panel = k / 4;
        const int in_row = 32 * (k % 4);
        flash::wgmma_m64k16<T, Tiles::Bc>(S_reg, flash::advance(Q_desc, panel * Q_panel + in_row),
                                          flash::advance(K_desc, panel * K_panel + in_row), k > 0);
    }
    flash::wgmma_commit();
}

/// Starts O += P V. A k16 step is 16 rows of V, 128 bytes each: it is read down its columns (true).
template <class T, class Tiles>
__device__ void start_PV(float (&O_reg)[Tiles::d / 8][4],
                         const uint32_t (&P_reg)[Tiles::Bc / 16][4], uint64_t V_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        const uint64_t V_rows = flash::advance(V_desc, 16 * 128 * k);
        flash::wgmma_m64k16<T, Tiles::d, true>(O_reg, P_reg[k], V_rows);
    }
    flash::wgmma_commit();
}

/// All keys are through: O is divided by l, and LSE stored. i is the lane's first row in the head.
template <class T, int fragments>
__device__ void finish(float (&O_reg)[fragments][4], const Rows& rows, const Task& task, int head,
                       int i) {
    float normalise[2];
    for (int r = 0; r < 2; ++r) {
        const float l = flash::row_sum(rows.l[r]);
        normalise[r] = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
        if (threadIdx.x % 4 == 0 && i + 8 * r < task.N_q) {
            const float m = rows.m[r] * task.scale_log2;
            task.LSE[int64_t{head} * task.N_q + i + 8 * r] = m * flash::ln_2 + logf(l);
        }
    }
    flash::scale_rows(O_reg, normalise);
    flash::limit_O<T>(O_reg);
}

/// Stores a warpgroup's C fragments, rounded to T, as the tile of the tensor that begins at `at`.
/// Rows beyond the tensor are not written. `smem` has room for the tile, and nobody reads what was
/// there. `row` is the lane's first row in the tile, and `barrier` a named barrier of the
/// warpgroup's own: a __syncthreads() for these 128 threads. When the first thread returns, the
/// tile has been read, so that its place is free and the block may leave.
template <class T, class Tile, int fragments>
__device__ void store_tile(const flash::TensorMap& map, const int (&at)[4], char* smem, int row,
                           const float (&C)[fragments][4], int barrier) {
    flash::store_C<T, Tile>(smem, row, C);
    flash::fence_proxy_async();                    // TMA sees what this thread has written,
    flash::named_barrier_sync(barrier, warpgroup); // and what the warpgroup's others have
    if (threadIdx.x % warpgroup == 0) {
        flash::tma_store<4>(map, at, smem);
        flash::bulk_commit();
        flash::bulk_wait_read<0>();
    }
}

template <class T, class Tiles>
__global__ __launch_bounds__(warpgroup, Tiles::blocks_per_sm) // threads, and blocks on an SM
    void wgmma_tma(const __grid_constant__ Task task) {
    constexpr int d = Tiles::d, Br = Tiles::Br, Bc = Tiles::Bc;
    using Q_tile = typename Tiles::Q;
    using KV_tile = typename Tiles::KV;
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();

    const auto [head, tile] = flash::tile_of(blockIdx.x, task.order);
    const int KV_head = head / task.group;
    const int i0 = tile * Br;
    const int keys = visible_keys(task, i0, i0 + Br); // tiles beyond them are never loaded
    const int whole = visible_keys(task, i0);         // keys that all of the 64 rows see
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = 16 * warp + lane / 4; // the lane's rows of the tile: this one, and row + 8

    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.Q_full, 1);
        flash::mbarrier_init(&smem.K_full, 1);
        flash::mbarrier_init(&smem.V_full, 1);
        flash::fence_mbarrier_init();
        if (keys > 0) {
            flash::mbarrier_expect_tx(&smem.Q_full, Q_tile::bytes);
            flash::tma_load<4>(smem.Q.data, task.Q, {0, i0, 0, head}, &smem.Q_full);
            flash::mbarrier_expect_tx(&smem.K_full, KV_tile::bytes);
            flash::tma_load<4>(smem.K.data, task.K, {0, 0, 0, KV_head}, &smem.K_full);
            flash::mbarrier_expect_tx(&smem.V_full, KV_tile::bytes);
            flash::tma_load<4>(smem.V.data, task.V, {0, 0, 0, KV_head}, &smem.V_full);
        }
    }
    __syncthreads(); // the barriers are there for all

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc
    // rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(smem.Q.data, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(smem.K.data, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(smem.V.data, 128 * Bc, 1024);

    Rows rows;
    float keep[2];
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    if (keys > 0) {
        flash::mbarrier_wait(&smem.Q_full, 0); // Q has landed
    }
    for (int j0 = 0, phase = 0; j0 < keys; j0 += Bc, phase ^= 1) {
        const bool more = j0 + Bc < keys; // tiles

        float S_reg[Bc / 8][4];                    // C fragments: 16 rows x 8 keys each
        flash::mbarrier_wait(&smem.K_full, phase); // the tile of K has landed
        start_QK<T, Tiles>(S_reg, Q_desc, K_desc);
        flash::wgmma_wait<0>(S_reg);
        __syncthreads(); // no warp's product still reads the tile of K
        if (threadIdx.x == 0 && more) {
            flash::mbarrier_expect_tx(&smem.K_full, KV_tile::bytes);
            flash::tma_load<4>(smem.K.data, task.K, {0, j0 + Bc, 0, KV_head}, &smem.K_full);
        }

        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (softmax(S_reg, rows, keep, task.scale_log2)) {
            flash::scale_rows(O_reg, keep);
        }
        uint32_t P_reg[Bc / 16][4]; // A fragments: 16 rows x 16 keys each
        flash::pack_A<T>(P_reg, S_reg);

        flash::mbarrier_wait(&smem.V_full, phase); // the tile of V has landed
        start_PV<T, Tiles>(O_reg, P_reg, V_desc);
        flash::wgmma_wait<0>(O_reg);
        __syncthreads(); // no warp's product still reads the tile of V
        if (threadIdx.x == 0 && more) {
            flash::mbarrier_expect_tx(&smem.V_full, KV_tile::bytes);
            flash::tma_load<4>(smem.V.data, task.V, {0, j0 + Bc, 0, KV_head}, &smem.V_full);
        }
    }

    finish<T>(O_reg, rows, task, head, i0 + row);
    // Through shared memory, where Q was.
    wgmma_tma::store_tile<T, Q_tile>(task.O, {0, i0, 0, head}, smem.Q.data, row, O_reg, 1);
}

/// The task of a launch whose blocks own Tiles::Br queries each. With a mask, waves of `places`
/// blocks as in block_order; without one, one head after the other, so that the blocks that run at
/// the same time read the same K and V, and find them in L2.
template <class Tiles, class T>
Task make_task(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               int places) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Tiles::Br));
    flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    const int wave_heads = p.causal ? std::clamp(places / Tr, 1, heads) : 1;
    using Q_tile = typename Tiles::Q;
    using KV_tile = typename Tiles::KV;
    return {.Q = flash::tile_map<Q_tile>(Q, heads, N_q),
            .K = flash::tile_map<KV_tile>(K, heads / group, N_kv),
            .V = flash::tile_map<KV_tile>(V, heads / group, N_kv),
            .O = flash::tile_map<Q_tile>(O, heads, N_q),
            .LSE = LSE,
            .order = {heads, wave_heads, Tr},
            .group = group,
            .N_q = N_q,
            .N_kv = N_kv,
            .scale_log2 = p.scale * flash::log2_e,
            .causal = p.causal};
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>); // 65 KiB at d = 128
    const int places = flash::resident_blocks(wgmma_tma<T, Tiles>, warpgroup, smem_bytes);
    const Task task = wgmma_tma::make_task<Tiles>(p, Q, K, V, O, LSE, places);
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    flash::launch(wgmma_tma<T, Tiles>, task.order.blocks(), warpgroup, smem_bytes, task);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim,
                                   [&](auto d) { run<T, Tiles<d>>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace wgmma_tma
