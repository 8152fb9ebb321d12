// backward_three_roles: gradients for heads of 256 columns, a warpgroup for each of dV, dK and dQ.
//
// The idea: at d = 256 dK and dV of 64 keys are all the registers that two warpgroups can spare, so
// neither can own both. As in backward_roles one owns dV and the other dK: the first makes S and P,
// the second dP and dS, of the same keys. P and dS are operands in the registers of whoever makes
// them, and both products are 256 wide, so little is read from shared memory. A third warpgroup
// makes dQ. None of the three is ever in step with another: they hand over P and dS and go on, and
// while one computes weights, the tensor cores have the products of the other two.
//
//   dV's  S ........ | P = exp(S) -> | dV ........... | S ........ | P -> ...
//   dK's  dP ............ |          -> dS -> | dK ........... | dP ...
//   dQ's                                   -> | dQ, half by half, added to memory
//
// Parent: backward_late_dq, but it is a new kernel: there is a loop per role. What these have in
// common with the parent's loop, and what is before and after them, is in
// common/cuda/derived/backward_steps.hpp.
// Look at: which registers each role has, and who waits for whom.
// Gained: a head dim. Without a mask it is 1.3 times as fast as FlashAttention-4 on an H200.
// First published: FlashAttention-3 (Shah and others, 2024) has two warpgroups share the keys at
// d = 256; each owns half of the columns there.
#include "steps/46a_backward_three_roles/backward_three_roles.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace backward_three_roles {
namespace {

using namespace flash::backward; // what backward_wgmma has around its loop

enum Role { of_dV, of_dK, of_dQ, fetches }; // of a warpgroup
enum NamedBarrier { through = 1, stored_dV, stored_dK };

/// A block owns Bc keys and walks along the queries in tiles of Br.
struct Tiles {
    static constexpr int d = 256;
    static constexpr int threads = 4 * warpgroup;
    static constexpr int stages = 2; // tiles of Q, and of dO, that are in shared memory
    static constexpr int Bc = 64, Br = 64;
    using KV = flash::SwizzledTile<d, Bc>;
    using Q = flash::SwizzledTile<d, Br>;   // and dO
    using dS = flash::SwizzledTile<Bc, Br>; // a row is a query
    // of a thread, which begins with 128
    static constexpr int dKV_registers = 192, dQ_registers = 104, producer_registers = 24;
    static_assert(warpgroup * (2 * dKV_registers + dQ_registers + producer_registers) <=
                  threads * 128);
};

/// A tile of Q, and what a step needs of its rows: LSE and delta.
struct Queries {
    Tiles::Q Q;
    flash::TwoRows rows[Tiles::Br / 2];
    static constexpr int bytes = Tiles::Q::bytes + Tiles::Br / 2 * sizeof(flash::TwoRows);
};

/// P on its way from a warp to the one that has the same keys of dP: A fragments, 16 keys x 16
/// queries, a lane's four registers side by side.
struct Weights {
    uint4 fragment[Tiles::Br / 16][warpgroup];
};

struct Shared {
    Tiles::KV K, V;
    flash::Ring<Tiles::stages, Queries> Q;
    flash::Ring<Tiles::stages, Tiles::Q> dO;
    flash::Ring<2, Tiles::dS> dS;
    flash::Ring<1, Weights> P;
    uint64_t KV_full;
};

/// What a thread owns: the three roles have the same keys.
struct OwnPlace : Place<Tiles> {
    __device__ OwnPlace() { role = 0; } // there is one tile of 64 keys
};

/// The producer's part: one thread.
__device__ void fetch(const Task& task, const Steps& steps, Shared& smem) {
    flash::mbarrier_expect_tx(&smem.KV_full, sizeof(smem.K) + sizeof(smem.V));
    const int key[] = {0, steps.j0, 0, steps.kv_head};
    flash::tma_load<4>(smem.K.data, task.K, key, &smem.KV_full);
    flash::tma_load<4>(smem.V.data, task.V, key, &smem.KV_full);
    flash::RingPlace<Tiles::stages> at;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, at.next()) {
            const int query[] = {0, i0, 0, head};
            auto& [Q, rows] = smem.Q.tile[at.stage];
            uint64_t *Q_full = &smem.Q.full[at.stage], *dO_full = &smem.dO.full[at.stage];
            smem.dO.acquire(at); // dV's product has read the stage's dO, and dP's has
            flash::mbarrier_expect_tx(dO_full, Tiles::Q::bytes);
            flash::tma_load<4>(smem.dO.tile[at.stage].data, task.dO, query, dO_full);
            smem.Q.acquire(at); // S's and dK's have read its Q, and both roles their rows
            flash::mbarrier_expect_tx(Q_full, Queries::bytes);
            flash::tma_load<4>(Q.data, task.Q, query, Q_full);
            flash::bulk_load(rows, task.Rows + (int64_t{head} * task.padded + i0) / 2, sizeof(rows),
                             Q_full);
        }
    }
}

/// Of dV or dK, C fragments, 16 keys x 8 columns each: a product of 128 columns at a time. ptxas
/// knows no larger one where a block has 512 threads, and with A in registers none is better.
using Gradient = float[2][Tiles::d / 16][4];

/// C += A B, and waits until it is there. B is a tile of Q or dO, whose next 64 columns are a panel
/// further on.
template <class T>
__device__ void add_product(Gradient& C, const uint32_t (&A)[Tiles::Br / 16][4], uint64_t B) {
    flash::start_AB<T>(C[0], A, B);
    flash::start_AB<T>(C[1], A, flash::advance(B, 2 * 128 * Tiles::Br));
    flash::wgmma_wait<1>(C[0]); // redundant: the next wait is for both, but names one of them
    flash::wgmma_wait<0>(C[1]);
}

/// dK or dV leaves by TMA, through the place of K or V, which no product reads any more. Named
/// barrier `barrier` is the warpgroup's own.
template <class T>
__device__ void store(const flash::TensorMap& map, const Steps& steps, Tiles::KV& smem,
                      const OwnPlace& place, const Gradient& C, int barrier) {
    using Half = flash::SwizzledTile<Tiles::d / 2, Tiles::Bc>;
    flash::store_C<T, Half>(smem.data, place.row, C[0]);
    flash::store_C<T, Half>(smem.data + Half::bytes, place.row, C[1]);
    flash::fence_proxy_async();                    // TMA sees what this thread has written,
    flash::named_barrier_sync(barrier, warpgroup); // and what the warpgroup's others have
    if (threadIdx.x % warpgroup == 0) {
        flash::tma_store<4>(map, {0, steps.j0, 0, steps.kv_head}, smem.data);
        flash::bulk_commit();
        flash::bulk_wait_read<0>(); // TMA has read the tile: the block may end
    }
}

/// The first role's part: P, and dV of 64 keys.
template <class T> __device__ void make_dV(const Task& task, const Steps& steps, Shared& smem) {
    constexpr int Br = Tiles::Br;
    const OwnPlace place;
    const uint64_t K = flash::wgmma_descriptor(smem.K.data, 0, 1024);
    const uint64_t first_Q = flash::wgmma_descriptor(smem.Q.tile[0].Q.data, 0, 1024);
    const uint64_t first_dO = flash::wgmma_descriptor(smem.dO.tile[0].data, 128 * Br, 1024);
    const int keys = min(Tiles::Bc, task.N_kv - steps.j0);
    Gradient dV_reg = {};
    flash::mbarrier_wait(&smem.KV_full, 0); // K has landed
    flash::RingPlace<Tiles::stages> at;
    flash::RingPlace<1> P_at;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        const int on_diagonal = task.causal ? i0 + (task.N_kv - task.N_q) - steps.j0 : Tiles::Bc;
        for (int head = 0; head < steps.group; ++head, at.next(), P_at.next()) {
            float S_reg[Br / 8][4]; // C fragments of S^T: 16 keys x 8 queries each
            float LSE_reg[Br / 8][2];
            smem.Q.wait(at); // the tile of Q has landed, and its rows
            read_LSE(LSE_reg, smem.Q.tile[at.stage].rows + place.t); // behind S they would wait
            flash::start_ABt<T, Tiles::d>(
                S_reg, K, flash::advance(first_Q, at.stage * static_cast<int>(sizeof(Queries))));
            flash::wgmma_wait<0>(S_reg);
            smem.Q.release(at); // this warp has read LSE, and its product Q
            weights<Tiles>(S_reg, LSE_reg, task.scale, place.row, place.t, keys, on_diagonal);
            uint32_t P_reg[Br / 16][4]; // A fragments: 16 keys x 16 queries each
            flash::pack_A<T>(P_reg, S_reg);
            smem.P.acquire(P_at); // the other role has read P of the step before
#pragma unroll
            for (int k = 0; k < Br / 16; ++k) {
                const uint32_t(&A)[4] = P_reg[k];
                smem.P.tile[0].fragment[k][threadIdx.x] = make_uint4(A[0], A[1], A[2], A[3]);
            }
            smem.P.commit(P_at);
            smem.dO.wait(at); // the tile of dO has landed
            // dV += P^T dO
            add_product<T>(dV_reg, P_reg, flash::advance(first_dO, at.stage * Tiles::Q::bytes));
            smem.dO.release(at); // its product has read dO
        }
    }
    flash::named_barrier_sync(through, 3 * warpgroup); // no warp's product still reads V
    store<T>(task.dV, steps, smem.V, place, dV_reg, stored_dV);
}

/// The second role's part: dS, and dK of the same keys.
template <class T> __device__ void make_dK(const Task& task, const Steps& steps, Shared& smem) {
    constexpr int Br = Tiles::Br;
    const OwnPlace place;
    const uint64_t V = flash::wgmma_descriptor(smem.V.data, 0, 1024);
    const uint64_t first_Q = flash::wgmma_descriptor(smem.Q.tile[0].Q.data, 128 * Br, 1024);
    const uint64_t first_dO = flash::wgmma_descriptor(smem.dO.tile[0].data, 0, 1024);
    Gradient dK_reg = {};
    flash::mbarrier_wait(&smem.KV_full, 0); // V has landed
    flash::RingPlace<2> at;                 // in the rings of Q, dO and dS
    flash::RingPlace<1> P_at;
    const int all = steps.tiles * steps.group;
    for (int step = 0; step < all; ++step, at.next(), P_at.next()) {
        float dP_reg[Br / 8][4]; // C fragments of dP^T: 16 keys x 8 queries each
        float delta_reg[Br / 8][2];
        uint32_t P_reg[Br / 16][4]; // A fragments: 16 keys x 16 queries each
        smem.Q.wait(at);            // the tile of Q has landed, and its rows
        read_delta(delta_reg, smem.Q.tile[at.stage].rows + place.t); // behind dP they would wait
        smem.dO.wait(at);                                            // the tile of dO has landed
        flash::start_ABt<T, Tiles::d>(dP_reg, V,
                                      flash::advance(first_dO, at.stage * Tiles::Q::bytes));
        flash::wgmma_wait<0>(dP_reg);
        smem.dO.release(at); // its product has read dO
        smem.P.wait(P_at);   // the other role has stored P
#pragma unroll
        for (int k = 0; k < Br / 16; ++k) {
            const uint4 A = smem.P.tile[0].fragment[k][threadIdx.x % warpgroup];
            P_reg[k][0] = A.x;
            P_reg[k][1] = A.y;
            P_reg[k][2] = A.z;
            P_reg[k][3] = A.w;
        }
        smem.P.release(P_at); // this warp has read P
        gradient_of_scores<T>(dP_reg, P_reg, delta_reg);
        uint32_t dS_reg[Br / 16][4];
        flash::pack_A<T>(dS_reg, dP_reg);
        smem.dS.acquire(at); // dQ of the step before the last has read dS
        store_dS(smem.dS.tile[at.stage].data, place, dS_reg);
        smem.dS.commit(at);
        // dK += dS^T Q
        add_product<T>(dK_reg, dS_reg,
                       flash::advance(first_Q, at.stage * static_cast<int>(sizeof(Queries))));
        smem.Q.release(at); // this warp has read delta, and its product Q
    }
    for (auto& half : dK_reg) {
        flash::scale_rows(half, {task.scale, task.scale});
    }
    flash::named_barrier_sync(through, 3 * warpgroup); // no warp's product still reads K
    store<T>(task.dK, steps, smem.K, place, dK_reg, stored_dK);
}

/// Starts dQ = dS K, 64 x 128. A k16 step is 16 keys: 32 bytes of each row of dS, and 16 rows of K,
/// which are read across.
template <class T>
__device__ void start_dQ(float (&dQ_reg)[Tiles::d / 16][4], uint64_t dS, uint64_t K) {
    flash::wgmma_fence(); // the registers of dQ_reg have been read before
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        flash::wgmma_m64k16<T, Tiles::d / 2, true>(dQ_reg, flash::advance(dS, 32 * k),
                                                   flash::advance(K, 2048 * k), k > 0);
    }
    flash::wgmma_commit();
}

/// The third role's part: what the block's keys add to dQ.
template <class T> __device__ void make_dQ(const Task& task, const Steps& steps, Shared& smem) {
    constexpr int half = Tiles::d / 2; // columns that are made at once: half of a tile
    const Place<Tiles> place;
    const uint64_t first_dS = flash::wgmma_descriptor(smem.dS.tile[0].data, 0, 1024);
    const uint64_t first_K = flash::wgmma_descriptor(smem.K.data, 128 * Tiles::Bc, 1024);
    flash::RingPlace<2> at;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, at.next()) {
            // where the warp's 16 rows begin in the sum
            const int64_t row = int64_t{head} * task.padded + i0 + place.warp_row;
            float* dQ = task.dQ_sum + row * Tiles::d;
            const uint64_t dS = flash::advance(first_dS, at.stage * Tiles::dS::bytes);
            smem.dS.wait(at);           // four warps have stored dS, later than K landed,
            flash::fence_proxy_async(); // and wgmma sees it
            for (int column = 0; column < Tiles::d; column += half) {
                float dQ_reg[half / 8][4]; // C fragments: 16 queries x 8 columns each
                // columns are 64 to a panel, of 128 bytes times Bc
                start_dQ<T>(dQ_reg, dS, flash::advance(first_K, 2 * column * Tiles::Bc));
                flash::wgmma_wait<0>(dQ_reg);
                if (column + half == Tiles::d) {
                    smem.dS.release(at); // both halves have read dS
                }
#pragma unroll
                for (int n = 0; n < half / 8; ++n) {
                    flash::add_to_sum(dQ + 16 * column + 128 * n, dQ_reg[n]);
                }
            }
        }
    }
    // no warp's product still reads K: its place is dK's way out, as V's is dV's
    flash::named_barrier_arrive(through, 3 * warpgroup);
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q.
template <class T>
__global__ __launch_bounds__(Tiles::threads, 1) void gradients(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.Q.init(8); // one arrival per warp of dV's and dK's
        smem.dO.init(8);
        smem.dS.init(4, 4); // per warp of dQ's, and of dK's
        smem.P.init(4, 4);  // of dK's, and of dV's
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all
    const flash::Tile K = flash::tile_of(blockIdx.x, task.order);
    // with a mask tile 0 of K is the longest, and comes first
    const Steps steps(K.head, task.order.Tr - 1 - K.i, Tiles::Bc, Tiles::Br, task);
    const int role = flash::warpgroup_of_thread();
    if (role == fetches) {
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            fetch(task, steps, smem);
        }
    } else if (role == of_dQ) {
        flash::give_registers<Tiles::dQ_registers>();
        make_dQ<T>(task, steps, smem);
    } else if (role == of_dK) {
        flash::take_registers<Tiles::dKV_registers>();
        make_dK<T>(task, steps, smem);
    } else {
        flash::take_registers<Tiles::dKV_registers>();
        make_dV<T>(task, steps, smem);
    }
}

template <class T>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::Workspace memory(workspace);
    const auto parts = flash::backward_parts(memory, p);
    flash::start_before_backward(p, O, LSE, dO, parts.Rows, parts.dQ_sum);
    const int places = flash::resident_blocks(gradients<T>, Tiles::threads, sizeof(Shared));
    const auto order = order_of(p, Tiles::Bc, places);
    flash::launch(gradients<T>, order.blocks(), Tiles::threads, sizeof(Shared),
                  task_of<T, Tiles>(p, Q, K, V, dO, dK, dV, parts, order));
    flash::start_after_backward(p, parts.dQ_sum, dQ);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) { return flash::backward_parts_bytes(p); }

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(
        p.head_dim, [&](auto) { run<T>(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace); });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_three_roles
