// backward_roles: The backward pass with two roles for warps.
//
// The idea: in backward_one_kernel a warp has room for dK and dV of 16 keys at d = 128. So each
// fragment that it reads from shared memory feeds one row of mma, and reading sets the pace. Here a
// warp owns 32 keys, but dV or dK, not both. Two warps share these keys: one makes S, P and dV, the
// other dP, dS and dK. P goes from the first to the second, rounded, as the fragments that it is.
// All warps make dQ = dS K, one tile late, as before.
//
//      owner of dV      S  | exp | hand P over | dQ of the last tile | dV
//      owner of dK      dQ of the last tile | dP | take P | dS | dK
//
// While one computes exp or dS, the other keeps the tensor cores busy. No barrier stops the whole
// block: a wait is for one buffer.
//
// Parent: backward_one_kernel. New: the roles, the waits, and P in shared memory. What happens
// before and after the loop is the parent's, from around_backward.hpp.
// Look at: the two branches, and each wait. Counter: ldmatrix per mma.
// First published: roles for warps, by Bauer and others, "CudaDMA" (2011).
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

/// A block owns `rows` keys, 16 M per pair of warps, and walks along the queries in tiles of
/// `along`.
template <int d_, int pairs_, int along_> struct Tiles {
    static constexpr int d = d_, pairs = pairs_, warps = 2 * pairs, threads = 32 * warps;
    static constexpr int M = 2;
    static constexpr int rows = 16 * M * pairs, along = along_;
    static constexpr int strips = 2; // of 16 rows, in a warp's part of dQ
    using Owned = flash::SwizzledTile<d, rows>;
    using Walked = flash::SwizzledTile<d, along>;
    using dS = flash::SwizzledTile<along, rows>; // transposed: a row is a key
};

/// Shared memory: even and odd tiles of the way have buffers and barriers of their own, apart from
/// P.
template <class Tiles> struct Shared {
    typename Tiles::Owned K, V;
    typename Tiles::Walked Q[2], dO[2];
    typename Tiles::dS dS[2];
    flash::TwoRows rows[2][Tiles::along / 2];
    uint4 P[Tiles::pairs][Tiles::along / 16][Tiles::M][32]; // A fragments: 4 registers of each lane
    // Q, dO and rows; dS of all pairs; all warps are through the step
    uint64_t landed[2], dS_there[2], done[2];
};

/// C += A B^T: 16 M rows of A from row `own` on, and all rows of the tile B.
template <class T, class Tiles>
__device__ void multiply(float (&C)[Tiles::M][Tiles::along / 8][4], int own,
                         const typename Tiles::Owned& A_smem,
                         const typename Tiles::Walked& B_smem) {
    const int A_lane = Tiles::Owned::offset_of_A(own, threadIdx.x % 32);
    const int B_lane = Tiles::Walked::offset_of_B(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Tiles::d / 16; ++k) {
        uint32_t A_reg[Tiles::M][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < Tiles::M; ++i) {
            flash::ldmatrix_x4(A_reg[i], A_smem.data + Tiles::Owned::fragment(A_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Tiles::along / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4(B_reg, B_smem.data + Tiles::Walked::fragment(B_lane, 8 * n, k));
            for (int i = 0; i < Tiles::M; ++i) {
                flash::mma_m16n8k16<T>(C[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(C[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// Sum += A B, where A is in registers: P or dS as A fragments, 16 rows x 16 columns each.
template <class T, class Tiles>
__device__ void accumulate(float (&Sum)[Tiles::M][Tiles::d / 8][4],
                           const uint32_t (&A_reg)[Tiles::M][Tiles::along / 16][4],
                           const typename Tiles::Walked& B_smem) {
    const int B_lane = Tiles::Walked::offset_of_B_transposed(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Tiles::along / 16; ++k) {
#pragma unroll
        for (int n = 0; n < Tiles::d / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(B_reg,
                                     B_smem.data + Tiles::Walked::fragment(B_lane, 16 * k, n / 2));
            for (int i = 0; i < Tiles::M; ++i) {
                flash::mma_m16n8k16<T>(Sum[i][n], A_reg[i][k], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(Sum[i][n + 1], A_reg[i][k], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// dS^T, which a warp has as A fragments from row `row0` on, to shared memory: there all can read
/// it.
template <class Tiles>
__device__ void publish(typename Tiles::dS& dS_smem, int row0,
                        const uint32_t (&dS_reg)[Tiles::M][Tiles::along / 16][4]) {
#pragma unroll
    for (int n = 0; n < Tiles::along / 8; ++n) { // 8 columns, left or right in fragment k
        const int k = n / 2, right = n % 2;
        const int to = Tiles::dS::offset(row0, right) + threadIdx.x % 4 * 4;
        for (int i = 0; i < Tiles::M; ++i) {
            for (int r = 0; r < 2; ++r) { // rows g and g + 8
                const int at = Tiles::dS::fragment(to, 16 * i + 8 * r, k);
                *reinterpret_cast<uint32_t*>(dS_smem.data + at) = dS_reg[i][k][2 * right + r];
            }
        }
    }
}

/// dQ += dS K over the block's keys. dQ_sum is where the tile's rows begin. There, 16 rows by 8
/// columns are 128 floats in the order of a C fragment: lanes add side by side.
template <class T, class Tiles>
__device__ void add_to_dQ(float* dQ_sum, const typename Tiles::dS& dS_smem,
                          const typename Tiles::Owned& K_smem) {
    constexpr int d = Tiles::d;
    // The warps share the tile: a warp makes some strips of 16 rows, and its part of their columns.
    constexpr int strips = Tiles::strips;
    constexpr int parts = Tiles::warps / (Tiles::along / (16 * strips));
    constexpr int n8 = d / 8 / parts; // fragments of 8 columns
    static_assert(n8 % 2 == 0, "an ldmatrix_x4 of K brings B for two m16n8k16");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int strip0 = warp / parts * strips, n0 = warp % parts * n8; // the first ones
    const int A_lane = Tiles::dS::offset_of_A_transposed(lane);
    const int B_lane = Tiles::Owned::offset_of_B_transposed(lane);
    float dQ_reg[strips][n8][4] = {};
#pragma unroll
    for (int k = 0; k < Tiles::rows / 16; ++k) { // 16 keys: rows of dS^T, and of K
        uint32_t A_reg[strips][4];
        for (int i = 0; i < strips; ++i) {
            flash::ldmatrix_x4_trans(A_reg[i], dS_smem.data +
                                                   Tiles::dS::fragment(A_lane, 16 * k, strip0 + i));
        }
#pragma unroll
        for (int n = 0; n < n8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(
                B_reg, K_smem.data + Tiles::Owned::fragment(B_lane, 16 * k, (n0 + n) / 2));
            for (int i = 0; i < strips; ++i) {
                flash::mma_m16n8k16<T>(dQ_reg[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(dQ_reg[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
    dQ_sum += 16 * d * strip0 + 128 * n0;
#pragma unroll
    for (int i = 0; i < strips; ++i) {
        for (int n = 0; n < n8; ++n) {
            flash::add_to_sum(dQ_sum + 16 * d * i + 128 * n, dQ_reg[i][n]);
        }
    }
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the tiles
/// of Q of every head of the group.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads) // of a block
    void gradients(const T* Q, const T* K, const T* V, const T* dO, const flash::TwoRows* Rows,
                   float* dQ_sum, T* dK, T* dV, flash::TileOrder order, int group, int N_q,
                   int padded, int N_kv, float scale, bool causal) {
    constexpr int d = Tiles::d, M = Tiles::M, Bc = Tiles::rows, Br = Tiles::along;
    constexpr int threads = Tiles::threads;
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x < 2) {
        // one arrival per thread, by its copies
        flash::mbarrier_init(&smem.landed[threadIdx.x], threads);
        // one arrival per thread that owns dK
        flash::mbarrier_init(&smem.dS_there[threadIdx.x], threads / 2);
        flash::mbarrier_init(&smem.done[threadIdx.x], threads); // all threads
    }
    __syncthreads(); // the barriers are there for all
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool owns_dV = warp < Tiles::pairs; // or else dK
    // The two warps of a pair wait for each other. So they are on different schedulers: warp w is
    // on scheduler w % 4.
    const int pair = owns_dV ? warp : Tiles::warps - 1 - warp;
    const int own = 16 * M * pair;   // the pair's first row in the tile of K
    const int row0 = own + lane / 4; // the lane's
    const int t = lane % 4;          // columns 2t and 2t + 1 of C

    // numbered as tiles of Q, whose last is the longest
    const auto [kv_head, tile] = flash::tile_of(blockIdx.x, order);
    const int j0 = (order.Tr - 1 - tile) * Bc; // of K it is the first
    const int64_t KV_from = (int64_t{kv_head} * N_kv + j0) * d;
    const int keys = min(Bc, N_kv - j0);

    // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
    // tile to begin with.
    const int first = causal ? max(0, j0 - (N_kv - N_q)) / Br * Br : 0;
    const int tiles = (N_q - first + Br - 1) / Br; // of one head
    const int steps = group * tiles;

    int head = kv_head * group, next_i0 = first; // of the tile to be fetched next
    const auto start_queries = [&](int step) {
        const int64_t from = (int64_t{head} * N_q + next_i0) * d;
        const int buffer = step % 2;
        // All warps are through step - 2: with its tile, which was in this buffer, with its P, and
        // with dS of step - 3. (Steps 0 and 1 pass.)
        flash::mbarrier_wait(&smem.done[buffer], step / 2 % 2 ^ 1);
        if (step < steps) {
            if (const int r = threadIdx.x; r < Br / 2) {
                flash::cp_async_16(smem.rows[buffer] + r,
                                   Rows + (int64_t{head} * padded + next_i0) / 2 + r);
            }
            flash::start_tile<threads>(smem.Q[buffer], Q + from, N_q - next_i0);
            flash::start_tile<threads>(smem.dO[buffer], dO + from, N_q - next_i0);
            flash::cp_async_mbarrier_arrive(&smem.landed[buffer]);
        }
    };
    flash::start_tile<threads>(smem.K, K + KV_from, keys);
    flash::start_tile<threads>(smem.V, V + KV_from, keys);
    start_queries(0); // its arrival is that of K and V, too

    float Sum_reg[M][d / 8][4] = {}; // dV or dK: C fragments
    int last_strip = 0;              // of the tile before

    const auto add_last_dQ = [&](int last) {                          // of step `last`
        flash::mbarrier_wait(&smem.dS_there[last % 2], last / 2 % 2); // all owners of dK stored it
        add_to_dQ<T, Tiles>(dQ_sum + int64_t{16 * d} * last_strip, smem.dS[last % 2], smem.K);
    };

    for (int step = 0; step < steps; ++step) {
        const int now = step % 2; // which of the two buffers
        const int i0 = next_i0;
        const int strip = (int64_t{head} * padded + i0) / 16;
        if (!owns_dV && step > 0) {
            add_last_dQ(step - 1); // while the owner of dV makes P
        }
        flash::mbarrier_wait(&smem.landed[now], step / 2 % 2); // the tile has landed
        float X_reg[M][Br / 8][4] = {};                        // S^T or dP^T, C fragments
        multiply<T, Tiles>(X_reg, own, owns_dV ? smem.K : smem.V,
                           owns_dV ? smem.Q[now] : smem.dO[now]);
        next_i0 = i0 + Br < N_q ? i0 + Br : first;
        head += next_i0 == first; // the group's next one
        start_queries(step + 1);
        const auto* rows = smem.rows[now]; // in fragment n, the lane's two are at 4n + t

        alignas(16) uint32_t A_reg[M][Br / 16][4]; // P^T or dS^T, rounded: A fragments
        if (owns_dV) {
#pragma unroll
            for (int n = 0; n < Br / 8; ++n) {
                for (int c = 0; c < 4; ++c) {
                    const float LSE_log2 = rows[4 * n + t].LSE_log2[c % 2];
                    for (int i = 0; i < M; ++i) {
                        const float x = fmaf(X_reg[i][n][c], scale * flash::log2_e, -LSE_log2);
                        X_reg[i][n][c] = flash::fast_exp2(-fabsf(x));
                    }
                }
            }
            // Row r of the tile of K is seen by the columns from r - on_diagonal on; a row that
            // pads it, by none.
            const int on_diagonal = causal ? i0 + (N_kv - N_q) - j0 : Bc;
            if (keys < Bc || on_diagonal < Bc - 1) { // an edge
#pragma unroll
                for (int n = 0; n < Br / 8; ++n) {
                    for (int c = 0; c < 4; ++c) {
                        const int column = 8 * n + 2 * t + c % 2;
                        for (int i = 0; i < M; ++i) {
                            const int row = row0 + 16 * i + c / 2 * 8;
                            if (row >= keys || row - on_diagonal > column) {
                                X_reg[i][n][c] = 0;
                            }
                        }
                    }
                }
            }
            for (int i = 0; i < M; ++i) {
                flash::pack_A<T>(A_reg[i], X_reg[i]);
            }
#pragma unroll
            for (int k = 0; k < Br / 16; ++k) {
                for (int i = 0; i < M; ++i) {
                    smem.P[pair][k][i][lane] = *reinterpret_cast<const uint4*>(A_reg[i][k]);
                }
            }
            flash::named_barrier_arrive(1 + pair, 64); // P is there
            if (step > 0) {
                add_last_dQ(step - 1); // while the owner of dK makes dS
            }
        } else {
            flash::named_barrier_sync(1 + pair, 64); // P is there
#pragma unroll
            for (int k = 0; k < Br / 16; ++k) {
                for (int i = 0; i < M; ++i) {
                    const uint4 P4 = smem.P[pair][k][i][lane];
                    const uint32_t P_reg[] = {P4.x, P4.y, P4.z, P4.w};
                    // An A fragment of dS^T: two C fragments of dP^T, the left one first, and of
                    // each rows g and g + 8.
                    for (int right = 0; right < 2; ++right) {
                        const int n = 2 * k + right;
                        const float* delta = rows[4 * n + t].delta;
                        for (int r = 0; r < 2; ++r) {
                            const float* dP = X_reg[i][n] + 2 * r;
                            const float2 P = flash::unpack<T>(P_reg[2 * right + r]);
                            A_reg[i][k][2 * right + r] =
                                flash::pack<T>(P.x * (dP[0] - delta[0]), P.y * (dP[1] - delta[1]));
                        }
                    }
                }
            }
            // apart, so that no load of P waits for a store of dS
            publish<Tiles>(smem.dS[now], row0, A_reg);
            flash::mbarrier_arrive(&smem.dS_there[now]); // this thread's part of dS is stored
        }
        accumulate<T, Tiles>(Sum_reg, A_reg, owns_dV ? smem.dO[now] : smem.Q[now]);
        flash::mbarrier_arrive(&smem.done[now]); // this thread is through the step
        last_strip = strip;
    }
    add_last_dQ(steps - 1);
    for (int i = 0; i < M; ++i) {
        flash::store_rows((owns_dV ? dV : dK) + KV_from, Sum_reg[i], owns_dV ? 1 : scale,
                          row0 + 16 * i, keys);
    }
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
        flash::order_in_waves(p, p.kv_heads, flash::ceil_div(N_kv, Tiles::rows), places);
    flash::Workspace parts(workspace);
    const auto [Rows, dQ_sum] = flash::backward_parts(parts, p);
    flash::start_before_backward(p, O, LSE, dO, Rows, dQ_sum);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>), Q, K,
                  V, dO, static_cast<const flash::TwoRows*>(Rows), dQ_sum, dK, dV, order, group,
                  N_q, padded, N_kv, p.scale, p.causal);
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
