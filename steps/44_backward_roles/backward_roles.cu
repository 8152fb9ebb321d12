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
    static constexpr int d = d_, pairs = pairs_, Br = Br_;
    static constexpr int Bc = 32 * pairs, warps = 2 * pairs, threads = 32 * warps;
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
    typename Tiles::KV K, V;
    typename Tiles::Q Q[2], dO[2];
    typename Tiles::dS dS[2];
    uint4 P[Tiles::pairs][Tiles::Br / 16][2][32]; // A fragments: four registers of each lane
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
        kv_head = K.head;
        head = kv_head * task.group;
        j0 = (task.order.Tr - 1 - K.i) * Tiles::Bc;
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
        // tile to begin with.
        first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Tiles::Br * Tiles::Br : 0;
        i0 = first;
        steps = task.group * ((task.N_q - first + Tiles::Br - 1) / Tiles::Br);
    }
    __device__ void advance(int N_q) {
        const int after = i0 + Tiles::Br;
        i0 = after < N_q ? after : first;
        head += i0 == first; // the group's next one
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
        flash::start_tile<threads>(smem.Q[buffer], task.Q + from, rows);
        flash::start_tile<threads>(smem.dO[buffer], task.dO + from, rows);
        flash::cp_async_mbarrier_arrive(&smem.landed[buffer]);
    }
}

/// C = A B^T: the pair's 32 rows of A, and all rows of the tile B.
template <class T, class Tiles>
__device__ void multiply(float (&C)[2][Tiles::Br / 8][4], int pair,
                         const typename Tiles::KV& A_smem, const typename Tiles::Q& B_smem) {
    const int A_lane = Tiles::KV::lane_of_A(32 * pair, threadIdx.x % 32);
    const int B_lane = Tiles::Q::lane_of_B(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Tiles::d / 16; ++k) {
        uint32_t A_reg[2][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < 2; ++i) {
            flash::ldmatrix_x4(A_reg[i], A_smem.data + Tiles::KV::fragment(A_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Tiles::Br / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4(B_reg, B_smem.data + Tiles::Q::fragment(B_lane, 8 * n, k));
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
                           const uint32_t (&A_reg)[2][Tiles::Br / 16][4],
                           const typename Tiles::Q& B_smem) {
    const int B_lane = Tiles::Q::lane_of_B_transposed(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Tiles::Br / 16; ++k) {
#pragma unroll
        for (int n = 0; n < Tiles::d / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(B_reg,
                                     B_smem.data + Tiles::Q::fragment(B_lane, 16 * k, n / 2));
            for (int i = 0; i < 2; ++i) {
                flash::mma_m16n8k16<T>(Sum[i][n], A_reg[i][k], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(Sum[i][n + 1], A_reg[i][k], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// dQ += dS K of a step, over the block's keys. strip: the tile's first 16 rows in dQ_sum.
template <class T, class Tiles>
__device__ void add_to_dQ(float* dQ_sum, int strip, Shared<Tiles>& smem, int step) {
    constexpr int d = Tiles::d;
    // The warps share the tile: a warp makes two strips of 16 rows, and its part of their columns.
    constexpr int parts = Tiles::warps / (Tiles::Br / 32);
    constexpr int n8 = d / 8 / parts; // fragments of 8 columns
    static_assert(n8 % 2 == 0, "an ldmatrix_x4 of K brings B for two m16n8k16");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int strip0 = warp / parts * 2, n0 = warp % parts * n8; // the first ones
    const int A_lane = Tiles::dS::lane_of_A_transposed(lane);
    const int B_lane = Tiles::KV::lane_of_B_transposed(lane);
    const auto& dS_smem = smem.dS[step % 2];
    float dQ_reg[2][n8][4] = {};
    flash::mbarrier_wait(&smem.dS_there[step % 2], step / 2 % 2); // all owners of dK have stored it
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) { // 16 keys: rows of dS^T, and of K
        uint32_t A_reg[2][4];
        for (int i = 0; i < 2; ++i) {
            flash::ldmatrix_x4_trans(A_reg[i], dS_smem.data +
                                                   Tiles::dS::fragment(A_lane, 16 * k, strip0 + i));
        }
#pragma unroll
        for (int n = 0; n < n8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(B_reg, smem.K.data +
                                                Tiles::KV::fragment(B_lane, 16 * k, (n0 + n) / 2));
            for (int i = 0; i < 2; ++i) {
                flash::mma_m16n8k16<T>(dQ_reg[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(dQ_reg[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
    dQ_sum += 16 * d * int64_t{strip + strip0} + 128 * n0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        for (int n = 0; n < n8; ++n) {
            flash::add_to_sum(dQ_sum + 16 * d * i + 128 * n, dQ_reg[i][n]);
        }
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
    flash::start_tile<threads>(smem.K, task.K + KV_from, keys);
    flash::start_tile<threads>(smem.V, task.V + KV_from, keys);
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
            for (int n = 0; n < Br / 8; ++n) {
                for (int c = 0; c < 4; ++c) {
                    const float LSE_log2 = rows[4 * n].LSE_log2[c % 2];
                    for (int i = 0; i < 2; ++i) {
                        const float x = fmaf(X_reg[i][n][c], task.scale * flash::log2_e, -LSE_log2);
                        X_reg[i][n][c] = flash::fast_exp2(-fabsf(x));
                    }
                }
            }
            // Row r of the tile of K is seen by the columns from r - on_diagonal on; a row that
            // pads it, by none.
            const int on_diagonal = task.causal ? i0 + (task.N_kv - task.N_q) - walk.j0 : Bc;
            if (keys < Bc || on_diagonal < Bc - 1) { // an edge
#pragma unroll
                for (int n = 0; n < Br / 8; ++n) {
                    for (int c = 0; c < 4; ++c) {
                        const int column = 8 * n + 2 * t + c % 2;
                        for (int i = 0; i < 2; ++i) {
                            const int row = row0 + 16 * i + c / 2 * 8;
                            if (row >= keys || row - on_diagonal > column) {
                                X_reg[i][n][c] = 0;
                            }
                        }
                    }
                }
            }
            flash::pack_A<T>(A_reg[0], X_reg[0]);
            flash::pack_A<T>(A_reg[1], X_reg[1]);
#pragma unroll
            for (int k = 0; k < Br / 16; ++k) {
                for (int i = 0; i < 2; ++i) {
                    smem.P[pair][k][i][lane] = *reinterpret_cast<const uint4*>(A_reg[i][k]);
                }
            }
            flash::named_barrier_arrive(1 + pair, 64); // P is there
            if (step > 0) {
                // while the owner of dK makes dS
                add_to_dQ<T>(task.dQ_sum, last_strip, smem, step - 1);
            }
        } else {
            flash::named_barrier_sync(1 + pair, 64); // P is there
#pragma unroll
            for (int k = 0; k < Br / 16; ++k) {
                for (int i = 0; i < 2; ++i) {
                    const uint4 P4 = smem.P[pair][k][i][lane];
                    const uint32_t P_reg[] = {P4.x, P4.y, P4.z, P4.w};
                    // An A fragment of dS^T: two C fragments of dP^T, the left one first, and of
                    // each rows g and g + 8.
                    for (int right = 0; right < 2; ++right) {
                        const float* delta = rows[4 * (2 * k + right)].delta;
                        for (int r = 0; r < 2; ++r) {
                            const float* dP = X_reg[i][2 * k + right] + 2 * r;
                            const float2 P = flash::unpack<T>(P_reg[2 * right + r]);
                            A_reg[i][k][2 * right + r] =
                                flash::pack<T>(P.x * (dP[0] - delta[0]), P.y * (dP[1] - delta[1]));
                        }
                    }
                }
            }
            // apart, so that no load of P waits for a store of dS
#pragma unroll
            for (int n = 0; n < Br / 8; ++n) {
                const int k = n / 2, right = n % 2;
                const int to = Tiles::dS::offset(row0, right) + 4 * t;
                for (int i = 0; i < 2; ++i) {
                    for (int r = 0; r < 2; ++r) {
                        const int at = Tiles::dS::fragment(to, 16 * i + 8 * r, k);
                        *reinterpret_cast<uint32_t*>(smem.dS[now].data + at) =
                            A_reg[i][k][2 * right + r];
                    }
                }
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
