// How `backward_late_dq` makes dQ, for the rungs after it: warpgroups that take turns, and their
// loop. Its writer is in dq_writer.hpp.
#pragma once

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace flash::backward {

/// The barrier for dS of a step: whose turn it is waits there, and the other one only arrives. The
/// next step has another one.
__device__ inline int dS_written(int step) { return 1 + step % 2; }

/// Starts a whole tile of dQ = dS K, 64 x 128: 64 queries and 128 columns or, at d = 64,
/// transposed, 64 columns and 128 queries. A k16 step is 16 keys.
template <class T, class Tiles>
__device__ inline void start_whole_dQ(float (&dQ_reg)[16][4], uint64_t dS, uint64_t K) {
    wgmma_fence(); // redundant: other products' stand in between, but ptxas asks for it
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        const int owner = k / 4; // of the 16 keys
        const uint64_t dS_k = advance(dS, owner * 128 * Tiles::Br + k % 4 * 32);
        const uint64_t K_k = advance(K, owner * Tiles::KV::bytes + k % 4 * 2048);
        if constexpr (Tiles::d == 64) {
            wgmma_m64k16<T, 128, false, true>(dQ_reg, K_k, dS_k, k > 0); // dQ^T = K^T dS^T
        } else {
            wgmma_m64k16<T, 128, true>(dQ_reg, dS_k, K_k, k > 0);
        }
    }
    wgmma_commit();
}

/// Puts the warp's 16 fragments of dQ in the rung's kind of outbox. `tile`: how many the block has
/// handed over before.
template <class Tiles, class RungOutbox>
__device__ inline void hand_over(RungOutbox& out, const Place<Tiles>& place,
                                 const float (&dQ_reg)[16][4], int tile) {
    float* own = out.tile + 128 * place.warp_row + 4 * (threadIdx.x % 32);
    out.wait_empty(tile); // TMA has read the tile before
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float(&C)[4] = dQ_reg[n];
        *reinterpret_cast<float4*>(own + 128 * n) = make_float4(C[0], C[1], C[2], C[3]);
    }
    out.arrive_full(tile);
}

/// dQ of a step, by the warpgroup whose turn it is, from both halves of dS.
template <class T, class Tiles, class RungShared>
__device__ inline void make_dQ(RungShared& smem, const Place<Tiles>& place, int step) {
    constexpr int both = Tiles::consumers * warpgroup;
    float dQ_reg[16][4]; // C fragments: 16 queries x 8 columns each, or 16 columns x 8 queries
    named_barrier_sync(dS_written(step), both); // the other half of dS is there
    fence_proxy_async();                        // and wgmma sees it
    start_whole_dQ<T, Tiles>(dQ_reg, wgmma_descriptor(smem.dS[step % 2].data, 0, 1024),
                             wgmma_descriptor(smem.K[0].data, 128 * 64, 1024));
    wgmma_wait<0>(dQ_reg);
    hand_over(smem.dQ, place, dQ_reg, step);
}

/// P = 0 where a tile's queries see a key no more: nowhere. A rung whose own kind of Task has a
/// window is asked instead. `query`: the tile's first one, counted from the block's first key.
template <class Tiles, class RungTask>
__device__ inline void hide_old_keys(const RungTask&, float (&)[Tiles::Br / 8][4],
                                     const Place<Tiles>&, int /*query*/) {}

/// A consumer's part: dK and dV of 64 keys, and in every second step dQ of the step before.
template <class T, class Tiles, class RungTask, class RungShared>
__device__ inline void compute(const RungTask& task, const Steps& steps, RungShared& smem) {
    constexpr int d = Tiles::d, Br = Tiles::Br, both = Tiles::consumers * warpgroup;
    constexpr int met = 3, through = 5, stored = 6; // named barriers, behind dS_written's
    const Place<Tiles> place;
    const Operands<Tiles> operands(smem, place);
    const int row = 64 * place.role + place.row, keys = min(Tiles::Bc, task.N_kv - steps.j0);
    float dK_reg[d / 8][4] = {}, dV_reg[d / 8][4] = {}; // C fragments: 16 keys x 8 columns each
    mbarrier_wait(&smem.KV_full, 0);                    // K and V have landed
    RingPlace<Tiles::stages> at;
    int step = 0;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, ++step, at.next()) {
            const bool own_turn = step % 2 == place.role;
            const int stage = at.stage * sizeof(Stage<Tiles>);
            const uint64_t Q = advance(operands.Q, stage), dO = advance(operands.dO, stage);
            const TwoRows* rows = smem.ring.tile[at.stage].rows + place.t;
            // now: a rung's task may lie in shared memory, and behind S a load would wait for it
            const int on_diagonal =
                task.causal ? i0 + (task.N_kv - task.N_q) - steps.j0 : Tiles::Bc;
            // C fragments of S^T and dP^T: 16 keys x 8 queries each
            float S_reg[Br / 8][4], dP_reg[Br / 8][4];
            float LSE_reg[Br / 8][2], delta_reg[Br / 8][2]; // of the lane's two queries in each
            smem.ring.wait(at); // the tiles of Q and dO have landed, and their rows
            if (!own_turn) { // no warp of this warpgroup still reads dS of the step before the last
                named_barrier_sync(met + place.role, warpgroup);
            } else if (step > 0) {
                make_dQ<T>(smem, place, step - 1);
            }
            read_LSE(LSE_reg, rows); // now: behind S, the loads would wait for it
            start_ABt<T, d>(S_reg, operands.K_own, Q);
            wgmma_wait<0>(S_reg);
            start_ABt<T, d>(dP_reg, operands.V_own, dO);
            weights<Tiles>(S_reg, LSE_reg, task.scale, row, place.t, keys, on_diagonal);
            hide_old_keys(task, S_reg, place, i0 - steps.j0);
            uint32_t P_reg[Br / 16][4]; // A fragments: 16 keys x 16 queries each
            pack_A<T>(P_reg, S_reg);
            // for dS: until dV's wait nobody may read the product's own registers
            uint32_t P_kept[Br / 16][4];
            copy_A(P_kept, P_reg);
            read_delta(delta_reg, rows);    // likewise, before dV
            start_AB<T>(dV_reg, P_reg, dO); // dV += P^T dO
            wgmma_wait<1>(dP_reg);          // dV goes on
            gradient_of_scores<T>(dP_reg, P_kept, delta_reg);
            uint32_t dS_reg[Br / 16][4];
            pack_A<T>(dS_reg, dP_reg);
            store_dS(smem.dS[step % 2].data, place, dS_reg);
            if (own_turn) { // then the next one is the other's, who makes dQ of this step
                named_barrier_arrive(dS_written(step), both);
            }
            start_AB<T>(dK_reg, dS_reg, Q); // dK += dS^T Q
            wgmma_wait<0>(dK_reg);
            smem.ring.release(at); // this warp has read LSE and delta, and its products Q and dO
        }
    }
    if (step % 2 == place.role) {
        make_dQ<T>(smem, place, step - 1);
    }
    named_barrier_sync(through, both); // no warp's product still reads K or V
    store_gradients<T>(task, steps, smem, place, dK_reg, dV_reg, stored);
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
            pack_8<T>(rows[r], scale);
    }
}

/// Starts the last kernel: dQ out of its sums.
template <class T, class Tiles> void start_after(const Problem& p, const float* dQ_sum, T* dQ) {
    if constexpr (Tiles::d == 64) {
        launch(after_transposed<T>, blocks_of_32_rows(p), 128, 0, dQ_sum, dQ,
               static_cast<int>(p.q_len), as_int(padded_rows(p), "q-len"), p.scale);
    } else {
        start_after_backward(p, dQ_sum, dQ);
    }
}

} // namespace flash::backward
