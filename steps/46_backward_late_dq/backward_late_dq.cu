// backward_late_dq: dQ comes a step late, and the warpgroups take turns at it.
//
// The idea: in backward_wgmma both warpgroups meet in every step, and around that barrier the
// tensor cores have nothing to do. Here one of them makes all of dQ in every second step, that of
// the step before. The other one has only said that its half of dS is written, and goes on. So dQ
// is a product 128 wide, and the two drift apart. Nor do warps add dQ to memory. They leave the
// tile in shared memory, and one more thread, the writer, has TMA add all of it.
//
//   tensor cores  dQ of the step before | S ...... | dP ......... | dV .................. | dK
//   consumers     (every second step)              | P = exp(S)   | dS, store it, say so  |
//   writer                              | TMA adds dQ
//
// Parent: backward_wgmma. What both have in common is in common/cuda/derived/backward_steps.hpp.
// Look at: own_turn, and who calls fence_proxy_async.
// First published: FlashAttention-3 (Shah and others, 2024), whose dQ is late, and added by TMA.
#include "steps/46_backward_late_dq/backward_late_dq.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace backward_late_dq {
namespace {

using namespace flash::backward; // what backward_wgmma has around its loop

/// A tile of dQ on its way from the consumers to the writer: fragment by fragment, as it lies in
/// dQ_sum.
template <class Tiles> struct Outbox {
    alignas(16) float tile[Tiles::Br * Tiles::d];
    uint64_t full, empty;

    /// One thread calls it, before a fence_mbarrier_init() and a __syncthreads().
    __device__ void init() {
        flash::mbarrier_init(&full, 4); // one arrival per warp of the warpgroup whose turn it is
        flash::mbarrier_init(&empty, 1);
    }
};

template <class Tiles> struct Shared : flash::backward::Shared<Tiles> { Outbox<Tiles> dQ; };

/// The barrier for dS of a step: whose turn it is waits there, and the other one only arrives. The
/// next step has another one.
__device__ inline int dS_written(int step) { return 1 + step % 2; }

/// Starts a whole tile of dQ = dS K, 64 x 128: 64 queries and 128 columns or, at d = 64,
/// transposed, 64 columns and 128 queries. A k16 step is 16 keys.
template <class T, class Tiles>
__device__ void start_whole_dQ(float (&dQ_reg)[16][4], uint64_t dS, uint64_t K) {
    flash::wgmma_fence(); // redundant: other products' stand in between, but ptxas asks for it
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        const int owner = k / 4; // of the 16 keys
        const uint64_t dS_k = flash::advance(dS, owner * 128 * Tiles::Br + k % 4 * 32);
        const uint64_t K_k = flash::advance(K, owner * Tiles::KV::bytes + k % 4 * 2048);
        if constexpr (Tiles::d == 64) {
            flash::wgmma_m64k16<T, 128, false, true>(dQ_reg, K_k, dS_k, k > 0); // dQ^T = K^T dS^T
        } else {
            flash::wgmma_m64k16<T, 128, true>(dQ_reg, dS_k, K_k, k > 0);
        }
    }
    flash::wgmma_commit();
}

/// Puts the warp's 16 fragments of dQ where the writer finds them. `tile`: how many the block has
/// handed over before.
template <class Tiles>
__device__ void hand_over(Outbox<Tiles>& out, const Place<Tiles>& place,
                          const float (&dQ_reg)[16][4], int tile) {
    float* own = out.tile + 128 * place.warp_row + 4 * (threadIdx.x % 32);
    flash::mbarrier_wait(&out.empty, tile % 2 ^ 1); // TMA has read the tile before
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float(&C)[4] = dQ_reg[n];
        *reinterpret_cast<float4*>(own + 128 * n) = make_float4(C[0], C[1], C[2], C[3]);
    }
    flash::mbarrier_arrive_warp(&out.full);
}

/// dQ of a step, by the warpgroup whose turn it is, from both halves of dS.
template <class T, class Tiles>
__device__ void make_dQ(Shared<Tiles>& smem, const Place<Tiles>& place, int step) {
    constexpr int both = Tiles::consumers * warpgroup;
    float dQ_reg[16][4]; // C fragments: 16 queries x 8 columns each, or 16 columns x 8 queries
    flash::named_barrier_sync(dS_written(step), both); // the other half of dS is there
    flash::fence_proxy_async();                        // and wgmma sees it
    start_whole_dQ<T, Tiles>(dQ_reg, flash::wgmma_descriptor(smem.dS[step % 2].data, 0, 1024),
                             flash::wgmma_descriptor(smem.K[0].data, 128 * 64, 1024));
    flash::wgmma_wait<0>(dQ_reg);
    hand_over(smem.dQ, place, dQ_reg, step);
}

/// The writer's part: one thread. It adds the block's tiles of dQ.
template <class Tiles>
__device__ void add_dQ(const Task& task, const Steps& steps, Outbox<Tiles>& out) {
    int step = 0;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, ++step) {
            const int64_t row = int64_t{head} * task.padded + i0;
            flash::mbarrier_wait(&out.full, step % 2); // four warps have stored it,
            flash::fence_proxy_async();                // and TMA sees it
            flash::bulk_reduce_add(task.dQ_sum + row * Tiles::d, out.tile, sizeof(out.tile));
            flash::bulk_commit();
            // TMA has read the tile: warps may store the next one, and the block may end
            flash::bulk_wait_read<0>();
            flash::mbarrier_arrive(&out.empty);
        }
    }
}

/// A consumer's part: dK and dV of 64 keys, and in every second step dQ of the step before.
template <class T, class Tiles>
__device__ void compute(const Task& task, const Steps& steps, Shared<Tiles>& smem) {
    constexpr int d = Tiles::d, Br = Tiles::Br, both = Tiles::consumers * warpgroup;
    constexpr int met = 3, through = 5, stored = 6; // named barriers, behind dS_written's
    const Place<Tiles> place;
    const Operands<Tiles> operands(smem, place);
    const int row = 64 * place.role + place.row, keys = min(Tiles::Bc, task.N_kv - steps.j0);
    float dK_reg[d / 8][4] = {}, dV_reg[d / 8][4] = {}; // C fragments: 16 keys x 8 columns each
    flash::mbarrier_wait(&smem.KV_full, 0);             // K and V have landed
    flash::RingPlace<Tiles::stages> at;
    int step = 0;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, ++step, at.next()) {
            const bool own_turn = step % 2 == place.role;
            const int stage = at.stage * sizeof(Stage<Tiles>);
            const uint64_t Q = flash::advance(operands.Q, stage),
                           dO = flash::advance(operands.dO, stage);
            const flash::TwoRows* rows = smem.ring.tile[at.stage].rows + place.t;
            const int on_diagonal =
                task.causal ? i0 + (task.N_kv - task.N_q) - steps.j0 : Tiles::Bc;
            // C fragments of S^T and dP^T: 16 keys x 8 queries each
            float S_reg[Br / 8][4], dP_reg[Br / 8][4];
            float LSE_reg[Br / 8][2], delta_reg[Br / 8][2]; // of the lane's two queries in each
            smem.ring.wait(at); // the tiles of Q and dO have landed, and their rows
            if (!own_turn) { // no warp of this warpgroup still reads dS of the step before the last
                flash::named_barrier_sync(met + place.role, warpgroup);
            } else if (step > 0) {
                make_dQ<T>(smem, place, step - 1);
            }
            read_LSE(LSE_reg, rows); // now: behind S, the loads would wait for it
            flash::start_ABt<T, d>(S_reg, operands.K_own, Q);
            flash::wgmma_wait<0>(S_reg);
            flash::start_ABt<T, d>(dP_reg, operands.V_own, dO);
            weights<Tiles>(S_reg, LSE_reg, task.scale, row, place.t, keys, on_diagonal);
            uint32_t P_reg[Br / 16][4]; // A fragments: 16 keys x 16 queries each
            flash::pack_A<T>(P_reg, S_reg);
            // for dS: until dV's wait nobody may read the product's own registers
            uint32_t P_kept[Br / 16][4];
            flash::copy_A(P_kept, P_reg);
            read_delta(delta_reg, rows);           // likewise, before dV
            flash::start_AB<T>(dV_reg, P_reg, dO); // dV += P^T dO
            flash::wgmma_wait<1>(dP_reg);          // dV goes on
            gradient_of_scores<T>(dP_reg, P_kept, delta_reg);
            uint32_t dS_reg[Br / 16][4];
            flash::pack_A<T>(dS_reg, dP_reg);
            store_dS(smem.dS[step % 2].data, place, dS_reg);
            if (own_turn) { // then the next one is the other's, who makes dQ of this step
                flash::named_barrier_arrive(dS_written(step), both);
            }
            flash::start_AB<T>(dK_reg, dS_reg, Q); // dK += dS^T Q
            flash::wgmma_wait<0>(dK_reg);
            smem.ring.release(at); // this warp has read LSE and delta, and its products Q and dO
        }
    }
    if (step % 2 == place.role) {
        make_dQ<T>(smem, place, step - 1);
    }
    flash::named_barrier_sync(through, both); // no warp's product still reads K or V
    store_gradients<T>(task, steps, smem, place, dK_reg, dV_reg, stored);
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) void gradients(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.ring.init(4 * Tiles::consumers); // one arrival per warp
        smem.dQ.init();
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all
    const flash::Tile K = flash::tile_of(blockIdx.x, task.order);
    // with a mask tile 0 of K is the longest, and comes first
    const Steps steps(K.head, task.order.Tr - 1 - K.i, Tiles::Bc, Tiles::Br, task);
    if (threadIdx.x / warpgroup == Tiles::consumers) {
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            fetch(task, steps, smem);
        } else if (threadIdx.x % warpgroup == 32) {
            // of another warp: neither may hold up the other
            add_dQ(task, steps, smem.dQ);
        }
    } else {
        flash::take_registers<Tiles::consumer_registers>();
        compute<T>(task, steps, smem);
    }
}

/// dQ, rounded and in rows, where its sum is transposed (d = 64): 32 rows per block. A thread makes
/// 8 columns of rows i and i + 1.
template <class T>
__global__ void after_transposed(const float* dQ_sum, T* dQ, int N_q, int padded, float scale) {
    constexpr int d = 64;
    const int64_t head = blockIdx.x / (padded / 32);
    const int t = threadIdx.x % 4, half = threadIdx.x / 4 % 2; // of the fragment's 16 columns
    const int warp = threadIdx.x / 8 % 4;                      // that had these columns
    const int i = blockIdx.x % (padded / 32) * 32 + threadIdx.x / 32 * 8 + 2 * t;
    const float* C = dQ_sum + (head * padded + i / 128 * 128) * d; // of a tile of 128 queries
    C += (16 * warp + i % 128 / 8) * 128 + 4 * t + 2 * half;
    float rows[2][8];
#pragma unroll
    for (int g = 0; g < 8; ++g) {
        const float2 both = *reinterpret_cast<const float2*>(C + 16 * g); // lane 4g + t's
        rows[0][g] = both.x;
        rows[1][g] = both.y;
    }
    for (int r = 0; r < 2 && i + r < N_q; ++r) {
        *reinterpret_cast<uint4*>(dQ + (head * N_q + i + r) * d + 16 * warp + 8 * half) =
            flash::pack_8<T>(rows[r], scale);
    }
}

/// Starts the last kernel: dQ out of its sums.
template <class T, class Tiles>
void start_after(const flash::Problem& p, const float* dQ_sum, T* dQ) {
    if constexpr (Tiles::d == 64) {
        flash::launch(after_transposed<T>, flash::blocks_of_32_rows(p), 128, 0, dQ_sum, dQ,
                      static_cast<int>(p.q_len), flash::as_int(flash::padded_rows(p), "q-len"),
                      p.scale);
    } else {
        flash::start_after_backward(p, dQ_sum, dQ);
    }
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::Workspace memory(workspace);
    const auto parts = flash::backward_parts(memory, p);
    flash::start_before_backward(p, O, LSE, dO, parts.Rows, parts.dQ_sum);
    const int places =
        flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const auto order = order_of(p, Tiles::Bc, places);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>),
                  task_of<T, Tiles>(p, Q, K, V, dO, dK, dV, parts, order));
    start_after<T, Tiles>(p, parts.dQ_sum, dQ);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) { return flash::backward_parts_bytes(p); }

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        run<T, Tiles<d>>(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_late_dq
