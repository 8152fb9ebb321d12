// What `backward_wgmma` has around its loop, for the rungs after it: a block's tiles and its way
// along the queries, the producer, and what consumers make of S and dP.
#pragma once

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/stmatrix.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/unpack.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace flash::backward {

constexpr int warpgroup = 128; // threads

/// A block owns Bc keys, 64 per consumer, and walks along the queries in tiles of Br.
template <int d_> struct Tiles {
    static constexpr int d = d_;
    static constexpr int consumers = 2; // warpgroups that compute; one more fetches
    static constexpr int threads = warpgroup * (consumers + 1);
    static constexpr int stages = 2; // tiles of Q, and of dO, that are in shared memory
    static constexpr int Bc = 64 * consumers;
    static constexpr int Br = d == 64 ? 128 : 64; // as many as the registers of S and dP allow
    using KV = SwizzledTile<d, 64>;               // of one consumer
    using Q = SwizzledTile<d, Br>;                // and dO
    using dS = SwizzledTile<Bc, Br>;              // a row is a query
    // of a thread, which begins with 168
    static constexpr int consumer_registers = 240, producer_registers = 24;
    static_assert(warpgroup * (consumers * consumer_registers + producer_registers) <=
                  threads * 168);
};

struct Task {
    TensorMap Q, K, V, dO, dK, dV;
    const TwoRows* Rows;
    float* dQ_sum;   // in the order of the fragments
    TileOrder order; // of the tiles of K
    int padded;      // rows of a head in Rows and dQ_sum
    int group;       // query heads to one K/V head
    int N_q, N_kv;
    float scale;
    bool causal;
};

/// What one step needs of the queries. It arrives together and is given back together.
template <class Tiles> struct Stage {
    typename Tiles::Q Q, dO;
    TwoRows rows[Tiles::Br / 2]; // LSE and delta
    static constexpr int bytes = 2 * Tiles::Q::bytes + Tiles::Br / 2 * sizeof(TwoRows);
};

template <class Tiles> struct Shared {
    typename Tiles::KV K[Tiles::consumers], V[Tiles::consumers];
    Ring<Tiles::stages, Stage<Tiles>> ring;
    typename Tiles::dS dS[2]; // of even and of odd steps
    uint64_t KV_full;
};

/// A block's way along the queries: from the last tile of Q to the first that sees one of its keys,
/// and at each tile through the heads of its group. So blocks of the same heads are near the same
/// queries at the same time, and share them in L2.
struct Steps {
    int kv_head, j0;       // of K and V; the block's first key
    int head, group;       // the first head of Q; how many
    int i0, stride, tiles; // the first query of the first tile; from tile to tile; how many tiles

    __device__ Steps(int kv_head_, int j, int Bc, int Br, const Task& task)
        : kv_head(kv_head_), j0(j * Bc), head(kv_head * task.group), group(task.group) {
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
        // tile to begin with.
        const int first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Br : 0;
        const int last = (task.N_q - 1) / Br;
        i0 = last * Br;
        stride = -Br;
        tiles = last - first + 1;
    }
};

/// The producer's part: one thread.
template <class Tiles>
__device__ void fetch(const Task& task, const Steps& steps, Shared<Tiles>& smem) {
    mbarrier_expect_tx(&smem.KV_full, sizeof(smem.K) + sizeof(smem.V));
    for (int w = 0; w < Tiles::consumers; ++w) {
        const int key[] = {0, steps.j0 + 64 * w, 0, steps.kv_head};
        tma_load<4>(smem.K[w].data, task.K, key, &smem.KV_full);
        tma_load<4>(smem.V[w].data, task.V, key, &smem.KV_full);
    }
    RingPlace<Tiles::stages> at;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, at.next()) {
            uint64_t* full = &smem.ring.full[at.stage];
            auto& stage = smem.ring.tile[at.stage];
            smem.ring.acquire(at); // all warps have read the stage's tiles and rows
            mbarrier_expect_tx(full, stage.bytes);
            tma_load<4>(stage.Q.data, task.Q, {0, i0, 0, head}, full);
            tma_load<4>(stage.dO.data, task.dO, {0, i0, 0, head}, full);
            bulk_load(stage.rows, task.Rows + (int64_t{head} * task.padded + i0) / 2,
                      sizeof(stage.rows), full);
        }
    }
}

/// What a consumer thread owns. Of a C fragment of S^T it has keys g and g + 8, and queries 2t and
/// 2t + 1.
template <class Tiles> struct Place {
    int role;     // which of the consumers
    int warp_row; // the warp's first row among the 64 of its warpgroup
    int row, t;   // the lane's g there

    __device__ Place() {
        role = warpgroup_of_thread();
        warp_row = threadIdx.x % warpgroup / 32 * 16;
        row = warp_row + threadIdx.x % 32 / 4;
        t = threadIdx.x % 4;
    }
};

/// The operands in shared memory. Q and dO serve twice: as they are, and across their rows, whose
/// next 64 columns are a panel further on.
template <class Tiles> struct Operands {
    uint64_t K_own, V_own; // the consumer's 64 keys
    uint64_t Q, dO;        // of stage 0

    __device__ Operands(Shared<Tiles>& smem, const Place<Tiles>& place) {
        constexpr int Q_panel = 128 * Tiles::Br;
        K_own = wgmma_descriptor(smem.K[place.role].data, 0, 1024);
        V_own = wgmma_descriptor(smem.V[place.role].data, 0, 1024);
        Q = wgmma_descriptor(smem.ring.tile[0].Q.data, Q_panel, 1024);
        dO = wgmma_descriptor(smem.ring.tile[0].dO.data, Q_panel, 1024);
    }
};

/// LSE of the lane's two queries in each C fragment. `rows` begins with those in the first one;
/// eight queries further on are four of `rows`.
template <int n8> __device__ void read_LSE(float (&LSE_reg)[n8][2], const TwoRows* rows) {
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        LSE_reg[n][0] = rows[4 * n].LSE_log2[0];
        LSE_reg[n][1] = rows[4 * n].LSE_log2[1];
    }
}

/// Their delta, likewise.
template <int n8> __device__ void read_delta(float (&delta_reg)[n8][2], const TwoRows* rows) {
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        delta_reg[n][0] = rows[4 * n].delta[0];
        delta_reg[n][1] = rows[4 * n].delta[1];
    }
}

/// P = exp(scale S - LSE), in the place of S^T: the lane's first key is `row` of the tile, whose
/// rows from `keys` on are padding. Row r is seen by the queries from r - on_diagonal on. Queries
/// of padding have Q = dO = 0: they add P times 0 to dV, and dS = P (0 - 0) = 0 times 0 to dK.
template <class Tiles>
__device__ void weights(float (&S_reg)[Tiles::Br / 8][4], const float (&LSE_reg)[Tiles::Br / 8][2],
                        float scale, int row, int t, int keys, int on_diagonal) {
    constexpr int n8 = Tiles::Br / 8;
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        for (int e = 0; e < 4; ++e) {
            const float x = fmaf(S_reg[n][e], scale * log2_e, -LSE_reg[n][e % 2]);
            S_reg[n][e] = fast_exp2(-fabsf(x));
        }
    }
    if (keys < Tiles::Bc || on_diagonal < Tiles::Bc - 1) { // an edge
#pragma unroll
        for (int n = 0; n < n8; ++n) {
            for (int e = 0; e < 4; ++e) {
                const int key = row + e / 2 * 8, query = 8 * n + 2 * t + e % 2;
                if (key >= keys || key - on_diagonal > query) {
                    S_reg[n][e] = 0;
                }
            }
        }
    }
}

/// dS = P (dP - delta), in the place of dP. P is packed: registers r and r + 2 of an A fragment are
/// row g + 8 r of two C fragments.
template <class T, int n8>
__device__ void gradient_of_scores(float (&dP_reg)[n8][4], const uint32_t (&P_reg)[n8 / 2][4],
                                   const float (&delta_reg)[n8][2]) {
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        const int k = n / 2, right = n % 2 * 2; // of A fragment k the left or the right half
        for (int r = 0; r < 2; ++r) {
            const float2 P = unpack<T>(P_reg[k][right + r]);
            dP_reg[n][2 * r] = P.x * (dP_reg[n][2 * r] - delta_reg[n][0]);
            dP_reg[n][2 * r + 1] = P.y * (dP_reg[n][2 * r + 1] - delta_reg[n][1]);
        }
    }
}

/// Writes the warp's 16 keys of dS, transposed on the way: lanes name the rows of four 8 x 8 tiles,
/// two of 8 keys side by side, and below them, 8 queries further on, two more.
template <class Tiles>
__device__ void store_dS(char* dS_smem, const Place<Tiles>& place,
                         const uint32_t (&dS_reg)[Tiles::Br / 16][4]) {
    const int lane = threadIdx.x % 32;
    const int key = 64 * place.role + place.warp_row;
    char* const own = dS_smem + Tiles::dS::offset(lane / 16 * 8 + lane % 8, key / 8 + lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < Tiles::Br / 16; ++k) { // 16 queries are 2048 bytes
        stmatrix_x4_trans(own + 2048 * k, dS_reg[k]);
    }
}

/// dK and dV leave by TMA, through the places of K and V, which no product reads any more. Named
/// barriers `barrier` and the next one are the consumers'.
template <class T, class Tiles>
__device__ void store_gradients(const Task& task, const Steps& steps, Shared<Tiles>& smem,
                                const Place<Tiles>& place, float (&dK_reg)[Tiles::d / 8][4],
                                const float (&dV_reg)[Tiles::d / 8][4], int barrier) {
    using KV = typename Tiles::KV;
    const int role = place.role, key[] = {0, steps.j0 + 64 * role, 0, steps.kv_head};
    scale_rows(dK_reg, {task.scale, task.scale});
    store_tile<T, KV>(task.dK, key, smem.K[role].data, place.row, dK_reg, barrier + role);
    store_tile<T, KV>(task.dV, key, smem.V[role].data, place.row, dV_reg, barrier + role);
}

template <class T, class Tiles>
Task task_of(const Problem& p, const T* Q, const T* K, const T* V, const T* dO, T* dK, T* dV,
             const BackwardParts& parts, const TileOrder& order) {
    using Q_tile = typename Tiles::Q;
    using KV_tile = typename Tiles::KV;
    const int N_q = as_int(p.q_len, "q-len"), N_kv = as_int(p.kv_len, "kv-len");
    const int heads = as_int(p.batch * p.heads, "batch x heads"),
              kv_heads = static_cast<int>(p.batch * p.kv_heads);
    return {.Q = tile_map<Q_tile>(Q, heads, N_q),
            .K = tile_map<KV_tile>(K, kv_heads, N_kv),
            .V = tile_map<KV_tile>(V, kv_heads, N_kv),
            .dO = tile_map<Q_tile>(dO, heads, N_q),
            .dK = tile_map<KV_tile>(dK, kv_heads, N_kv),
            .dV = tile_map<KV_tile>(dV, kv_heads, N_kv),
            .Rows = parts.Rows,
            .dQ_sum = parts.dQ_sum,
            .order = order,
            .padded = static_cast<int>(padded_rows(p)),
            .group = heads / kv_heads,
            .N_q = N_q,
            .N_kv = N_kv,
            .scale = p.scale,
            .causal = p.causal};
}

/// The order of the tiles of K. A mask makes tiles unequally long. So the longest of eight heads
/// come first, or of all heads where there are few blocks: none may begin when the others are about
/// to end. Without a mask one head comes after the other. `places` is how many blocks the GPU holds
/// at once.
inline TileOrder order_of(const Problem& p, int Bc, int places) {
    const int kv_heads = as_int(p.batch * p.kv_heads, "batch x kv-heads"),
              Tc = static_cast<int>(ceil_div(p.kv_len, Bc));
    const int blocks = as_int(int64_t{kv_heads} * Tc, "batch x kv-heads x tiles of K");
    const int together = blocks < 4 * places ? kv_heads : std::min(8, kv_heads);
    return {kv_heads, p.causal ? together : 1, Tc};
}

} // namespace flash::backward
