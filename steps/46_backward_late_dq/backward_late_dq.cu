// backward_late_dq: the backward pass by TMA and wgmma.
// The idea: backward_one_kernel's five products, with Hopper's units. A producer fetches Q and dO,
// two consumer warpgroups own 64 keys each. While threads compute, products are under way. dQ needs
// dS of both warpgroups, so it comes a step late: then neither waits for the other. It leaves by
// TMA, which adds a whole tile to memory, where backward_one_kernel had an atomic instruction for
// every 128 numbers. A writer asks for it, one thread of the producer's warpgroup.
//
//   tensor cores  dQ of the step before | S .............. | dP ........ | dV ............... | dK
//   consumers                           | dQ to the writer | exp, pack P | dS to shared memory |
//   writer                                                 | TMA adds dQ
//
// Against backward_one_kernel: tiles and roles as in warp_specialization. dS takes P as it was
// rounded, from a copy, so that S is free once P is packed. Look at: what each wait leaves running,
// and operands that are read across (transpose_A, transpose_B).
// First published: FlashAttention-3 (Shah and others, 2024), whose kernel has these products, roles
// and additions.
#include "steps/46_backward_late_dq/backward_late_dq.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/unpack.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace backward_late_dq {
namespace {

constexpr int warpgroup = 128, consumers = 2; // threads; warpgroups that compute
constexpr int Bc = 64 * consumers;            // keys
constexpr int slots = 2;                      // tiles of Q, and of dO, that are in shared memory
constexpr int threads = warpgroup * (consumers + 1);
// of a thread, which begins with 168
constexpr int consumer_registers = 240, producer_registers = 24;
static_assert(warpgroup * (consumers * consumer_registers + producer_registers) <= threads * 168);
// queries: as many as the registers of S and dP allow
template <int d> constexpr int Br = d == 64 ? 128 : 64;
template <int d> using KV_tile = flash::SwizzledTile<d, 64>; // of one consumer
template <int d> using Q_tile = flash::SwizzledTile<d, Br<d>>;
template <int d> using dS_tile = flash::SwizzledTile<Br<d>, Bc>; // transposed: a row is a key

struct Task {
    flash::TensorMap Q, K, V, dO, dK, dV;
    const flash::TwoRows* Rows;
    float* dQ_sum;                // the fragments of C, element by element
    flash::TileOrder order;       // of the tiles of K
    int padded, group, N_q, N_kv; // rows of a head in Rows and dQ_sum; query heads to one K/V head
    float scale;
    bool causal;
};

template <int d> struct Shared {
    alignas(1024) char K[consumers][KV_tile<d>::bytes];
    alignas(1024) char V[consumers][KV_tile<d>::bytes];
    flash::Ring<slots, char[2 * Q_tile<d>::bytes]> Q; // and dO behind it
    alignas(1024) char dS[2][dS_tile<d>::bytes];      // of this step, and of the one before
    alignas(16) float dQ[Br<d> * d]; // a tile, in the order in which it lies in dQ_sum
    alignas(16) flash::TwoRows rows[slots][Br<d> / 2]; // LSE and delta, which come and go with them
    int i0[slots];                                     // their first query
    uint64_t KV_full, dQ_full, dQ_empty;
};

/// A block's way along the queries: from the last tile to the first, and each tile of every head of
/// the group.
// Blocks of the same heads are then near the same queries at the same time, and share them in L2.
struct Steps {
    int kv_head, head, j0; // of K and V; the first one of Q; the block's first key
    // the first query of the first and of the last tile of Q that see one of its keys
    int first, last;
    __device__ Steps(const Task& task, flash::Tile K, int Br)
        : kv_head(K.head), head(K.head * task.group) {
        // with a mask tile 0 of K is the longest, and comes first
        j0 = (task.order.Tr - 1 - K.i) * Bc;
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
        // tile to begin with.
        first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Br * Br : 0,
        last = (task.N_q - 1) / Br * Br;
    }
};

/// The producer's part: one thread.
template <int d> __device__ void fetch(const Task& task, const Steps& steps, Shared<d>& smem) {
    flash::mbarrier_expect_tx(&smem.KV_full, sizeof(smem.K) + sizeof(smem.V));
    for (int w = 0; w < consumers; ++w) {
        flash::tma_load<4>(smem.K[w], task.K, {0, steps.j0 + 64 * w, 0, steps.kv_head},
                           &smem.KV_full);
        flash::tma_load<4>(smem.V[w], task.V, {0, steps.j0 + 64 * w, 0, steps.kv_head},
                           &smem.KV_full);
    }
    flash::RingPlace<slots> at;
    for (int i0 = steps.last; i0 >= steps.first; i0 -= Br<d>) {
        for (int head = steps.head; head < steps.head + task.group; ++head, at.next()) {
            uint64_t* full = &smem.Q.full[at.stage];
            // all warps have read the slot's tiles and rows
            flash::mbarrier_wait(&smem.Q.empty[at.stage], at.phase ^ 1);
            smem.i0[at.stage] = i0;
            flash::mbarrier_expect_tx(full, sizeof(smem.Q.tile[0]) + sizeof(smem.rows[0]));
            flash::tma_load<4>(smem.Q.tile[at.stage], task.Q, {0, i0, 0, head}, full);
            flash::tma_load<4>(smem.Q.tile[at.stage] + Q_tile<d>::bytes, task.dO, {0, i0, 0, head},
                               full);
            flash::bulk_load(smem.rows[at.stage],
                             task.Rows + (int64_t{head} * task.padded + i0) / 2,
                             sizeof(smem.rows[0]), full);
        }
    }
}

/// The writer's part: one thread. It adds the block's tiles of dQ.
template <int d> __device__ void add_dQ(const Task& task, const Steps& steps, Shared<d>& smem) {
    for (int i0 = steps.last, step = 0; i0 >= steps.first; i0 -= Br<d>) {
        for (int head = steps.head; head < steps.head + task.group; ++head, ++step) {
            const int64_t row = int64_t{head} * task.padded + i0;
            flash::mbarrier_wait(&smem.dQ_full, step % 2); // all warps have stored it
            flash::bulk_reduce_add(task.dQ_sum + row * d, smem.dQ, sizeof(smem.dQ));
            flash::bulk_commit();
            // TMA has read the tile: warps may store the next one, and the block may end
            flash::bulk_wait_read<0>();
            flash::mbarrier_arrive(&smem.dQ_empty);
        }
    }
}

/// The barrier at which a consumer says that its half of dS of a step is written. The next step has
/// another one.
__device__ int dS_written(int role, int step) { return 1 + 2 * (step % 2) + role; }

/// Starts 64 x 64 of dQ = dS K, of a step. dS lies transposed: its rows, which are keys, are read
/// across, as K's are.
template <class T, int d>
__device__ void start_dQ(float (&dQ_reg)[8][4], uint64_t dS_desc, uint64_t K_desc, int role,
                         int step) {
    // both halves of dS are there
    flash::named_barrier_sync(dS_written(1 - role, step), 2 * warpgroup);
    dS_desc = flash::advance(dS_desc, step % 2 * dS_tile<d>::bytes);
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        const uint64_t K_rows = flash::advance(K_desc, k / 4 * KV_tile<d>::bytes + 2048 * (k % 4));
        flash::wgmma_m64k16<T, 64, true, true>(dQ_reg, flash::advance(dS_desc, 2048 * k), K_rows,
                                               k > 0);
    }
    flash::wgmma_commit();
}

/// Hands the warp's part of the block's tile number `tile` of dQ to the writer.
template <int d>
__device__ void hand_over_dQ(Shared<d>& smem, float* own, const float (&dQ_reg)[8][4], int tile) {
    flash::mbarrier_wait(&smem.dQ_empty, tile % 2 ^ 1); // TMA has read the tile before
#pragma unroll
    for (int e = 0; e < 32; ++e) {
        own[32 * e + threadIdx.x % 32] = dQ_reg[e / 4][e % 4];
    }
    flash::fence_proxy_async(); // TMA sees what this thread has written
    flash::mbarrier_arrive(&smem.dQ_full);
}

/// A consumer's part: dK and dV of 64 keys, and half of each tile of dQ.
template <class T, int d>
__device__ void compute(const Task& task, const Steps& steps, Shared<d>& smem) {
    constexpr int Br = backward_late_dq::Br<d>;
    // role: known to be uniform
    const int role = __shfl_sync(~0u, threadIdx.x / warpgroup, 0), lane = threadIdx.x % 32;
    const int t = lane % 4;                                 // columns 2t and 2t + 1 of C
    const int warp_row = threadIdx.x % warpgroup / 32 * 16; // in the warpgroup's 64 rows
    // the lane's first row there; in the tile of K
    const int own_row = warp_row + lane / 4, row0 = 64 * role + own_row;
    const int keys = min(Bc, task.N_kv - steps.j0);
    // the warp's 16 x 64 of dQ
    float* own = smem.dQ + 64 * (d == 64 ? 64 * role + warp_row : 2 * warp_row + 16 * role);
    // Q and dO serve twice: as they are, and across their rows, whose next 64 columns are Br rows
    // on.
    const uint64_t K_own = flash::wgmma_descriptor(smem.K[role], 0, 1024);
    const uint64_t V_own = flash::wgmma_descriptor(smem.V[role], 0, 1024);
    const uint64_t Q_desc = flash::wgmma_descriptor(smem.Q.tile, 128 * Br, 1024);
    const uint64_t dO_desc =
        flash::wgmma_descriptor(smem.Q.tile[0] + Q_tile<d>::bytes, 128 * Br, 1024);
    // The warpgroup's half of dQ: 64 queries of dS, or else 64 columns of K.
    const uint64_t dS_desc =
        flash::wgmma_descriptor(smem.dS[0] + (d == 64 ? 128 * Bc * role : 0), 0, 1024);
    const uint64_t K_desc =
        flash::wgmma_descriptor(smem.K[0] + (d == 64 ? 0 : 128 * 64 * role), 0, 1024);

    for (int x = threadIdx.x; x < dS_tile<d>::bytes / 16; x += 2 * warpgroup) {
        // dS of the step before the first
        reinterpret_cast<uint4*>(smem.dS[0])[x] = make_uint4(0, 0, 0, 0);
    }
    flash::fence_proxy_async(); // wgmma sees what this thread has written
    flash::named_barrier_arrive(dS_written(role, 0), 2 * warpgroup);

    float dK_reg[d / 8][4] = {}, dV_reg[d / 8][4] = {}; // C fragments: 16 keys x 8 columns each
    flash::mbarrier_wait(&smem.KV_full, 0);             // K and V have landed
    flash::RingPlace<slots> at;
    int step = 1;
    for (; step <= task.group * ((steps.last - steps.first) / Br + 1); ++step, at.next()) {
        const int now = at.stage * sizeof(smem.Q.tile[0]);
        // C fragments of S^T and dP^T: 16 keys x 8 queries each
        float S_reg[Br / 8][4], dP_reg[Br / 8][4];
        float dQ_reg[8][4]; // C fragments, 16 queries x 8 columns each, of the step before
        // the tiles of Q and dO have landed, and their rows
        flash::mbarrier_wait(&smem.Q.full[at.stage], at.phase);
        start_dQ<T, d>(dQ_reg, dS_desc, K_desc, role, step - 1);
        flash::start_ABt<T, d>(S_reg, K_own, flash::advance(Q_desc, now));
        flash::wgmma_wait<1>(dQ_reg);
        if (step > 1) {
            hand_over_dQ(smem, own, dQ_reg, step - 2);
        }
        flash::wgmma_wait<0>(S_reg);
        flash::start_ABt<T, d>(dP_reg, V_own, flash::advance(dO_desc, now));
        const flash::TwoRows* rows = smem.rows[at.stage] + t;
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            for (int c = 0; c < 4; ++c) {
                const float LSE_log2 = rows[4 * n].LSE_log2[c % 2];
                S_reg[n][c] =
                    flash::fast_exp2(fmaf(S_reg[n][c], task.scale * flash::log2_e, -LSE_log2));
            }
        }
        // Row r of the tile of K is seen by the columns from r - on_diagonal on; a row that pads
        // it, by none. Columns of padding have Q = dO = 0: they add P times 0 to dV, and dS = P (0
        // - 0) = 0 times 0 to dK.
        const int on_diagonal =
            task.causal ? smem.i0[at.stage] + (task.N_kv - task.N_q) - steps.j0 : Bc;
        if (keys < Bc || on_diagonal < Bc - 1) { // an edge
#pragma unroll
            for (int e = 0; e < Br / 2; ++e) { // element e % 4 of fragment e / 4
                const int row = row0 + e % 4 / 2 * 8, column = e / 4 * 8 + 2 * t + e % 2;
                if (row >= keys || row - on_diagonal > column) {
                    // a choice, not a product: in a row that sees no key P is infinite
                    S_reg[e / 4][e % 4] = 0;
                }
            }
        }
        uint32_t P_reg[Br / 16][4]; // A fragments: 16 keys x 16 queries each
        flash::pack_A<T>(P_reg, S_reg);
        // for dS: until dV's wait nobody may read the product's own registers
        uint32_t P_kept[Br / 16][4];
        flash::copy_A(P_kept, P_reg);
        flash::start_AB<T>(dV_reg, P_reg, flash::advance(dO_desc, now)); // dV += P^T dO
        flash::wgmma_wait<1>(dP_reg);
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            for (int c = 0; c < 4; ++c) {
                const float2 P = flash::unpack<T>(P_kept[n / 2][n % 2 * 2 + c / 2]);
                dP_reg[n][c] = (c % 2 == 0 ? P.x : P.y) * (dP_reg[n][c] - rows[4 * n].delta[c % 2]);
            }
        }
        uint32_t dS_reg[Br / 16][4];
        flash::pack_A<T>(dS_reg, dP_reg);
        flash::store_C<T, dS_tile<d>>(smem.dS[step % 2], row0, dP_reg);
        // wgmma sees what this thread has written; of the others it asks a step later
        flash::fence_proxy_async();
        flash::named_barrier_arrive(dS_written(role, step), 2 * warpgroup);
        flash::start_AB<T>(dK_reg, dS_reg, flash::advance(Q_desc, now)); // dK += dS^T Q
        flash::mbarrier_arrive(&smem.Q.empty[at.stage]); // this thread has read LSE and delta,
        flash::wgmma_wait<0>(dK_reg);
        // and this warp's products no longer read Q and dO
        flash::mbarrier_arrive_warp(&smem.Q.empty[at.stage]);
    }
    float dQ_reg[8][4];
    start_dQ<T, d>(dQ_reg, dS_desc, K_desc, role, step - 1);
    flash::wgmma_wait<0>(dQ_reg);
    hand_over_dQ(smem, own, dQ_reg, step - 2);

    // dK and dV leave through the places of K and V.
    flash::scale_rows(dK_reg, {task.scale, task.scale});
    flash::named_barrier_sync(5, 2 * warpgroup); // no warp's product still reads K or V
    const int key[] = {0, steps.j0 + 64 * role, 0, steps.kv_head};
    flash::store_tile<T, KV_tile<d>>(task.dK, key, smem.K[role], own_row, dK_reg, 6 + role);
    flash::store_tile<T, KV_tile<d>>(task.dV, key, smem.V[role], own_row, dV_reg, 6 + role);
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q.
template <class T, int d>
__global__ __launch_bounds__(threads, 1) void gradients(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<d>>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.Q.init(consumers * (warpgroup + 4)); // one arrival per thread, and one per warp
        flash::mbarrier_init(&smem.dQ_full, consumers * warpgroup);
        flash::mbarrier_init(&smem.dQ_empty, 1);
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all
    const Steps steps(task, flash::tile_of(blockIdx.x, task.order), Br<d>);
    if (threadIdx.x / warpgroup == consumers) {
        flash::give_registers<producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            fetch(task, steps, smem);
        } else if (threadIdx.x % warpgroup == 32) {
            // of another warp: neither may hold up the other
            add_dQ(task, steps, smem);
        }
    } else {
        flash::take_registers<consumer_registers>();
        compute<T, d>(task, steps, smem);
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads"),
              kv_heads = static_cast<int>(p.batch * p.kv_heads);
    flash::Workspace parts(workspace);
    const auto [Rows, dQ_sum] = flash::backward_parts(parts, p);
    flash::start_before_backward(p, O, LSE, dO, Rows, dQ_sum);
    const int padded = static_cast<int>(flash::padded_rows(p)),
              Tc = static_cast<int>(flash::ceil_div(N_kv, Bc));
    const int blocks = flash::as_int(int64_t{kv_heads} * Tc, "batch x kv-heads x tiles of K");
    // Where blocks are few, the tiles that a mask makes long come first; else one head comes after
    // the other.
    const bool few =
        blocks < 4 * flash::resident_blocks(gradients<T, d>, threads, sizeof(Shared<d>));
    const flash::TileOrder order{kv_heads, p.causal && few ? kv_heads : 1, Tc};
    flash::launch(gradients<T, d>, blocks, threads, sizeof(Shared<d>),
                  Task{flash::tile_map<Q_tile<d>>(Q, heads, N_q),
                       flash::tile_map<KV_tile<d>>(K, kv_heads, N_kv),
                       flash::tile_map<KV_tile<d>>(V, kv_heads, N_kv),
                       flash::tile_map<Q_tile<d>>(dO, heads, N_q),
                       flash::tile_map<KV_tile<d>>(dK, kv_heads, N_kv),
                       flash::tile_map<KV_tile<d>>(dV, kv_heads, N_kv), Rows, dQ_sum, order, padded,
                       heads / kv_heads, N_q, N_kv, p.scale, p.causal});
    flash::start_after_backward<flash::SumOrder::elements>(p, static_cast<const float*>(dQ_sum),
                                                           dQ);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) { return flash::backward_parts_bytes(p); }

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(
        p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace); });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_late_dq
