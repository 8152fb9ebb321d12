// backward_roles: the backward pass with two roles for warps.
// The idea: in backward_one_kernel a warp has room for dK and dV of 16 keys at d = 128, so each
// fragment that it reads from shared memory feeds one row of mma, and reading sets the pace. Here a
// warp owns 32 keys, but dV or dK, not both. Two warps share these keys: one makes S, P and dV, the
// other dP, dS and dK. P goes from the first to the second, rounded, as the fragments that it is.
// All warps make dQ = dS K, one tile late, as before.
//
//      owner of dV      S  | exp | hand P over | dQ of the last tile | dV
//      owner of dK      dQ of the last tile | dP | take P | dS | dK
// While one computes exp or dS, the other keeps the tensor cores busy. No barrier stops the whole
// block: a wait is for one buffer. Look at: the two branches, and each wait. Counters: ldmatrix per
// mma. (Roles: Bauer and others, 2011.)
#include "steps/44_backward_roles/backward_roles.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/unpack.hpp"
#include "common/cuda/ptx/warpgroup.hpp"

namespace backward_roles {
namespace {

/// A block owns Bc keys, 32 per pair of warps, and walks along the queries in tiles of Br.
template <int d_, int pairs_, int Br_> struct Tiles {
    static constexpr int d = d_, pairs = pairs_, Br = Br_, Bc = 32 * pairs, warps = 2 * pairs,
                         threads = 32 * warps;
    using KV = flash::SwizzledTile<d, Bc>;
    using Q = flash::SwizzledTile<d, Br>;
    using dS = flash::SwizzledTile<Br, Bc>; // transposed: a row is a key
};

template <class T> struct Task {
    const T *Q, *K, *V, *dO;
    const flash::TwoRows* Rows;
    float* dQ_sum; // in the order of the fragments, as before
    T *dK, *dV;
    flash::TileOrder order;       // of the tiles of K
    int padded, group, N_q, N_kv; // rows of a head in Rows and dQ_sum; query heads to one K/V head
    float scale;
    bool causal;
};

/// Shared memory: even and odd steps have buffers and barriers of their own, apart from P.
template <class Tiles> struct Shared {
    alignas(128) char K[Tiles::KV::bytes], V[Tiles::KV::bytes];
    alignas(128) char Q[2][Tiles::Q::bytes], dO[2][Tiles::Q::bytes];
    alignas(128) char dS[2][Tiles::dS::bytes];
    uint4 P[Tiles::pairs][Tiles::Br / 8][32]; // A fragments: four registers of each lane
    flash::TwoRows rows[2][Tiles::Br / 2];
    // Q, dO and rows; dS of all pairs; all warps are through the step
    uint64_t landed[2], dS_there[2], done[2];
};

/// A block's way along the tiles of Q: those of every head of the group, one head after the other.
// j0: its first key; first: a head's first query; i0: this tile's
template <class T, class Tiles> struct Walk {
    int kv_head, j0, first, steps, head, i0;

    __device__ explicit Walk(const Task<T>& task) {
        // with a mask the first one is the longest
        const flash::Tile K = flash::tile_of(blockIdx.x, task.order);
        kv_head = K.head, head = kv_head * task.group, j0 = (task.order.Tr - 1 - K.i) * Tiles::Bc;
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
        // tile to begin with.
        first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Tiles::Br * Tiles::Br : 0;
        i0 = first, steps = task.group * ((task.N_q - first + Tiles::Br - 1) / Tiles::Br);
    }
    __device__ void advance(int N_q) {
        const int after = i0 + Tiles::Br;
        i0 = after < N_q ? after : first, head += i0 == first;
    }
};

/// Starts to fetch Q, dO and the rows for step `step`, if there is such a step. Every thread copies
/// a part.
template <class T, class Tiles>
__device__ void fetch(Shared<Tiles>& smem, const Task<T>& task, const Walk<T, Tiles>& tile,
                      int step) {
    constexpr int d = Tiles::d, Br = Tiles::Br, threads = Tiles::threads;
    const int buffer = step % 2, rows = task.N_q - tile.i0; // rows: how many the tile has
    const int64_t from = (int64_t{tile.head} * task.N_q + tile.i0) * d;
    // All warps are through step - 2: with its tile, which lies here, its P, and dS of step - 3.
    // (Steps 0 and 1 pass.)
    flash::mbarrier_wait(&smem.done[buffer], step / 2 % 2 ^ 1);
    if (step < tile.steps) {
        if (const int r = threadIdx.x; r < Br / 2) {
            flash::cp_async_16(smem.rows[buffer] + r,
                               task.Rows + (int64_t{tile.head} * task.padded + tile.i0) / 2 + r);
        }
        flash::start_tile<d, Br, threads>(smem.Q[buffer], task.Q + from, rows);
        flash::start_tile<d, Br, threads>(smem.dO[buffer], task.dO + from, rows);
        flash::cp_async_mbarrier_arrive(&smem.landed[buffer]);
    }
}

/// C = A B^T: the pair's 32 rows of A, and all rows of the tile B.
template <class T, class Tiles>
__device__ void multiply(float (&C)[2][Tiles::Br / 8][4], int pair, const char* A_smem,
                         const char* B_smem) {
    const int A_lane = Tiles::KV::lane_of_A(32 * pair, threadIdx.x % 32);
    const int B_lane = Tiles::Q::lane_of_B(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Tiles::d / 16; ++k) {
        uint32_t A_reg[2][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < 2; ++i) {
            flash::ldmatrix_x4(A_reg[i], A_smem + Tiles::KV::fragment(A_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Tiles::Br / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4(B_reg, B_smem + Tiles::Q::fragment(B_lane, 8 * n, k));
            for (int i = 0; i < 2; ++i) {
                flash::mma_m16n8k16<T>(C[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(C[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// Sum += A B, where the 32 rows of A are in registers: P^T or dS^T.
template <class T, class Tiles>
__device__ void accumulate(float (&Sum)[2][Tiles::d / 8][4],
                           const uint32_t (&A_reg)[2][Tiles::Br / 16][4], const char* B_smem) {
    const int B_lane = Tiles::Q::lane_of_A(0, threadIdx.x % 32); // B transposed is named as A is
#pragma unroll
    for (int k = 0; k < Tiles::Br / 16; ++k) {
#pragma unroll
        for (int n = 0; n < Tiles::d / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(B_reg, B_smem + Tiles::Q::fragment(B_lane, 16 * k, n / 2));
            for (int i = 0; i < 2; ++i) {
                flash::mma_m16n8k16<T>(Sum[i][n], A_reg[i][k], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(Sum[i][n + 1], A_reg[i][k], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// dQ += dS K of a step, over the block's keys: 32 rows per warp, and some of the columns. strip:
/// the tile's in dQ.
// n8: fragments of columns
template <class T, class Tiles>
__device__ void add_to_dQ(float* dQ_sum, int strip, Shared<Tiles>& smem, int step) {
    constexpr int d = Tiles::d, parts = Tiles::warps / (Tiles::Br / 32), n8 = d / 8 / parts;
    static_assert(n8 % 2 == 0, "an ldmatrix_x4 of K brings B for two m16n8k16");
    const int lane = threadIdx.x % 32, rows16 = threadIdx.x / 32 / parts * 2,
              part = threadIdx.x / 32 % parts;
    // dS^T becomes dS as ldmatrix transposes it: keys are rows in memory, and columns of A.
    const int A_lane = Tiles::dS::lane_of_B(lane), B_lane = Tiles::KV::lane_of_A(0, lane);
    float dQ_reg[2][n8][4] = {};
    flash::mbarrier_wait(&smem.dS_there[step % 2], step / 2 % 2); // all owners of dK have stored it
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        uint32_t A_reg[2][4];
        for (int i = 0; i < 2; ++i) {
            flash::ldmatrix_x4_trans(A_reg[i], smem.dS[step % 2] +
                                                   Tiles::dS::fragment(A_lane, 16 * k, rows16 + i));
        }
#pragma unroll
        for (int n = 0; n < n8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(
                B_reg, smem.K + Tiles::KV::fragment(B_lane, 16 * k, (part * n8 + n) / 2));
            for (int i = 0; i < 2; ++i) {
                flash::mma_m16n8k16<T>(dQ_reg[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(dQ_reg[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
    dQ_sum += 16 * d * int64_t{strip + rows16} + 128 * part * n8;
#pragma unroll
    for (int f = 0; f < 2 * n8; ++f) {
        flash::add_to_sum(dQ_sum + 16 * d * (f / n8) + 128 * (f % n8), dQ_reg[f / n8][f % n8]);
    }
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the queries
/// of its heads.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads) void gradients(Task<T> task) {
    constexpr int d = Tiles::d, Bc = Tiles::Bc, Br = Tiles::Br, threads = Tiles::threads;
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x < 2) {
        // one arrival per thread, by its copies
        flash::mbarrier_init(&smem.landed[threadIdx.x], threads);
        // one arrival per thread that owns dK
        flash::mbarrier_init(&smem.dS_there[threadIdx.x], threads / 2);
        flash::mbarrier_init(&smem.done[threadIdx.x], threads); // all threads
    }
    __syncthreads(); // the barriers are there for all
    Walk<T, Tiles> walk(task);
    const int64_t KV_from = (int64_t{walk.kv_head} * task.N_kv + walk.j0) * d;
    const int keys = min(Bc, task.N_kv - walk.j0);
    flash::start_tile<d, Bc, threads>(smem.K, task.K + KV_from, keys);
    flash::start_tile<d, Bc, threads>(smem.V, task.V + KV_from, keys);
    fetch(smem, task, walk, 0); // its arrival is that of K and V, too
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    const bool owns_dV = warp < Tiles::pairs; // or else dK
    // The two warps of a pair wait for each other. So they are on different schedulers: warp w is
    // on scheduler w % 4.
    const int pair = owns_dV ? warp : Tiles::warps - 1 - warp;
    // the lane's first row in the tile of K; its columns of C: 2t and 2t + 1
    const int row0 = 32 * pair + lane / 4;
    float Sum_reg[2][d / 8][4] = {}; // dV or dK: C fragments
    int last_strip = 0;              // of the tile before
    for (int step = 0; step < walk.steps; ++step) {
        const int now = step % 2, i0 = walk.i0;
        // dQ in strips of 16 rows: the tile's first
        const int strip = (int64_t{walk.head} * task.padded + i0) / 16;
        const flash::TwoRows* rows = smem.rows[now] + t;
        if (!owns_dV && step > 0) {
            add_to_dQ<T>(task.dQ_sum, last_strip, smem, step - 1); // while the owner of dV makes P
        }
        flash::mbarrier_wait(&smem.landed[now], step / 2 % 2); // the tile has landed
        float X_reg[2][Br / 8][4] = {};                        // S^T or dP^T: C fragments
        multiply<T, Tiles>(X_reg, pair, owns_dV ? smem.K : smem.V,
                           owns_dV ? smem.Q[now] : smem.dO[now]);
        walk.advance(task.N_q);
        fetch(smem, task, walk, step + 1);
        alignas(16) uint32_t A_reg[2][Br / 16][4]; // P^T or dS^T, rounded: A fragments
        if (owns_dV) {
#pragma unroll
            for (int e = 0; e < Br; ++e) { // all elements, column by column
                float& s = X_reg[e % 2][e / 8][e / 2 % 4];
                s = flash::fast_exp2(
                    fmaf(s, task.scale * flash::log2_e, -rows[e / 8 * 4].LSE_log2[e / 2 % 2]));
            }
            // Row r of the tile of K is seen by the columns from r - on_diagonal on; a row that
            // pads it, by none.
            const int on_diagonal = task.causal ? i0 + (task.N_kv - task.N_q) - walk.j0 : Bc;
            if (keys < Bc || on_diagonal < Bc - 1) { // an edge
#pragma unroll
                for (int e = 0; e < Br; ++e) {
                    const int row = row0 + e % 2 * 16 + e / 4 % 2 * 8,
                              column = e / 8 * 8 + 2 * t + e / 2 % 2;
                    if (row >= keys || row - on_diagonal > column) {
                        // chosen: P of a row that sees no key is infinite
                        X_reg[e % 2][e / 8][e / 2 % 4] = 0;
                    }
                }
            }
            flash::pack_A<T>(A_reg[0], X_reg[0]);
            flash::pack_A<T>(A_reg[1], X_reg[1]);
#pragma unroll
            for (int f = 0; f < Br / 8; ++f) {
                smem.P[pair][f][lane] = *reinterpret_cast<const uint4*>(A_reg[f % 2][f / 2]);
            }
            flash::named_barrier_arrive(1 + pair, 64); // P is there
            if (step > 0) {
                // while the owner of dK makes dS
                add_to_dQ<T>(task.dQ_sum, last_strip, smem, step - 1);
            }
        } else {
            flash::named_barrier_sync(1 + pair, 64); // P is there
// an A fragment of P^T, two C fragments of dP^T, an A fragment of dS^T
#pragma unroll
            for (int f = 0; f < Br / 8; ++f) {
                const uint4 P4 = smem.P[pair][f][lane];
                const uint32_t P_reg[] = {P4.x, P4.y, P4.z, P4.w};
                for (int c = 0; c < 4; ++c) {
                    const float *dP = X_reg[f % 2][f / 2 * 2 + c / 2] + c % 2 * 2,
                                *delta = rows[f / 2 * 8 + c / 2 * 4].delta;
                    const float2 P = flash::unpack<T>(P_reg[c]);
                    A_reg[f % 2][f / 2][c] =
                        flash::pack<T>(P.x * (dP[0] - delta[0]), P.y * (dP[1] - delta[1]));
                }
            }
// apart, so that no load of P waits for a store of dS
#pragma unroll
            for (int e = 0; e < Br / 2; ++e) {
                const int n = e / 4, r = e % 4, to = Tiles::dS::offset(row0, n % 2) + 4 * t;
                *reinterpret_cast<uint32_t*>(smem.dS[now] + Tiles::dS::fragment(to, 8 * r, n / 2)) =
                    A_reg[r / 2][n / 2][n % 2 * 2 + r % 2];
            }
            flash::mbarrier_arrive(&smem.dS_there[now]); // this thread's part of dS is stored
        }
        accumulate<T, Tiles>(Sum_reg, A_reg, owns_dV ? smem.dO[now] : smem.Q[now]);
        flash::mbarrier_arrive(&smem.done[now]); // this thread is through the step
        last_strip = strip;
    }
    add_to_dQ<T>(task.dQ_sum, last_strip, smem, walk.steps - 1);
    flash::store_rows((owns_dV ? task.dV : task.dK) + KV_from, Sum_reg[0], owns_dV ? 1 : task.scale,
                      row0, keys);
    flash::store_rows((owns_dV ? task.dV : task.dK) + KV_from, Sum_reg[1], owns_dV ? 1 : task.scale,
                      row0 + 16, keys);
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    const int padded = flash::as_int(flash::padded_rows(p), "q-len"),
              group = static_cast<int>(p.heads / p.kv_heads);
    const int places =
        flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const auto order =
        flash::order_in_waves(p, p.kv_heads, flash::ceil_div(N_kv, Tiles::Bc), places);
    flash::Workspace parts(workspace);
    const auto [Rows, dQ_sum] = flash::backward_parts(parts, p);
    flash::start_before_backward(p, O, LSE, dO, Rows, dQ_sum);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>),
                  Task<T>{Q, K, V, dO, Rows, dQ_sum, dK, dV, order, padded, group, N_q, N_kv,
                          p.scale, p.causal});
    flash::start_after_backward(p, static_cast<const float*>(dQ_sum), dQ);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) { return flash::backward_parts_bytes(p); }

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        using Most = Tiles<d, 4, (d < 128 ? 128 : 64)>; // 146 to 194 KiB: Hopper
        using Least = Tiles<d, 2, (d < 128 ? 64 : 32)>; // wastes less where a mask leaves few tiles
        const bool few = (d < 128 && p.q_len <= 1024) ||
                         sizeof(Shared<Most>) > flash::max_shared_memory_per_block();
        (few ? run<T, Least> : run<T, Most>)(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_roles
