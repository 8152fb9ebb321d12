// backward_one_kernel: The backward pass in one kernel, which adds to dQ by atomics.
//
// The idea: backward_two_kernels computes S and dP twice, because dQ belongs to queries, and dK and
// dV belong to keys. Here a block owns keys, as in its second kernel, and uses dS for dQ as well:
// five products in place of seven. Each block has a part of every dQ. So dQ is a sum in fp32
// memory, to which all blocks add by atomics. Their order depends on the run, and so do dQ's last
// bits.
//
// Parent: backward_two_kernels, whose first kernel is gone. New: publish and add_to_dQ, before and
// after. dQ needs dS of all keys of the block, so dS passes through shared memory, and dQ is made a
// tile late: one barrier per tile is still enough.
// Look at: add_to_dQ, and the order of its sum. Counters: mma, barriers, atomics' sectors.
// First published: five products, by Dao and others, "FlashAttention" (2022); blocks along the keys
// that add to dQ, by Dao, "FlashAttention-2" (2023).
#include "steps/43_backward_one_kernel/backward_one_kernel.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/unpack.hpp"

namespace backward_one_kernel {
namespace {

/// A block owns `rows` keys, 16 M per warp, and walks along the queries in tiles of `along`.
template <int d_, int warps_> struct Tiles {
    static constexpr int d = d_, warps = warps_, threads = 32 * warps;
    static constexpr int M = d < 128 ? 2 : 1;
    static constexpr int rows = 16 * M * warps, along = 8 * warps;
    static constexpr int strips = d < 128 ? 1 : 2; // of 16 rows, in a warp's part of dQ
    using Owned = flash::SwizzledTile<d, rows>;
    using Walked = flash::SwizzledTile<d, along>;
    using dS = flash::SwizzledTile<along, rows>; // transposed: a row is a key
};

/// What the loop must know of rows 2r and 2r + 1 of Q: LSE in units of log2, and delta; 0 in rows
/// that pad a tile.
struct alignas(16) TwoRows {
    float LSE_log2[2], delta[2];
};

/// Shared memory: even and odd tiles of the way have buffers of their own.
template <class Tiles> struct Shared {
    typename Tiles::Owned K, V;
    typename Tiles::Walked Q[2], dO[2];
    typename Tiles::dS dS[2];
    TwoRows rows[2][Tiles::along / 2];
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

/// The sum of dO O over a row, for each of the four lanes that share it; a lane takes every fourth
/// 16 bytes.
template <class T, int d> __device__ float delta_of_row(const T* dO, const T* O, bool exists) {
    float sum = 0;
#pragma unroll
    for (int x = 8 * (threadIdx.x % 4); x < d && exists; x += 32) {
        sum += flash::dot<T>(*reinterpret_cast<const uint4*>(dO + x),
                             *reinterpret_cast<const uint4*>(O + x));
    }
    return flash::row_sum(sum);
}

/// LSE and delta of every row, and zeros for dQ: 32 rows per block, with four lanes per row.
template <class T, int d>
__global__ void before(const T* O, const float* LSE, const T* dO, TwoRows* Rows, float* dQ_sum,
                       int N_q, int padded) {
    const int64_t head = blockIdx.x / (padded / 32),
                  row = int64_t{blockIdx.x} * 32 + threadIdx.x / 4;
    const int i = blockIdx.x % (padded / 32) * 32 + threadIdx.x / 4;
    const int64_t from = (head * N_q + i) * d;
    const float delta = delta_of_row<T, d>(dO + from, O + from, i < N_q);
    if (threadIdx.x % 4 == 0) {
        Rows[row / 2].LSE_log2[row % 2] = i < N_q ? LSE[head * N_q + i] * flash::log2_e : 0.0f;
        Rows[row / 2].delta[row % 2] = delta;
    }
    for (int x = 4 * (threadIdx.x % 4); x < d; x += 16) {
        *reinterpret_cast<float4*>(dQ_sum + row * d + x) = make_float4(0, 0, 0, 0);
    }
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the tiles
/// of Q of every head of the group.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads) // of a block
    void gradients(const T* Q, const T* K, const T* V, const T* dO, const TwoRows* Rows,
                   float* dQ_sum, T* dK, T* dV, flash::TileOrder order, int group, int N_q,
                   int padded, int N_kv, float scale, bool causal) {
    constexpr int d = Tiles::d, M = Tiles::M, Bc = Tiles::rows, Br = Tiles::along;
    constexpr int threads = Tiles::threads;
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    const int own = 16 * M * (threadIdx.x / 32); // the warp's first row in the tile of K
    const int row0 = own + threadIdx.x % 32 / 4; // the lane's
    const int t = threadIdx.x % 4;               // columns 2t and 2t + 1 of C

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
    const auto start_queries = [&](int buffer) { // 0 or 1
        const int64_t from = (int64_t{head} * N_q + next_i0) * d;
        if (const int r = threadIdx.x; r < Br / 2) {
            flash::cp_async_16(smem.rows[buffer] + r,
                               Rows + (int64_t{head} * padded + next_i0) / 2 + r);
        }
        flash::start_tile<threads>(smem.Q[buffer], Q + from, N_q - next_i0);
        flash::start_tile<threads>(smem.dO[buffer], dO + from, N_q - next_i0);
        flash::cp_async_commit();
    };
    flash::start_tile<threads>(smem.K, K + KV_from, keys);
    flash::start_tile<threads>(smem.V, V + KV_from, keys);
    start_queries(0); // one group: K, V, and the first tile

    float dK_reg[M][d / 8][4] = {}, dV_reg[M][d / 8][4] = {}; // C fragments
    float* dQ_last = nullptr;                                 // the tile before
    for (int step = 0; step < steps; ++step) {
        const int now = step % 2;  // which of the two buffers
        flash::cp_async_wait<0>(); // this thread's copies of the tile have landed
        // so have all others'; dS of the last tile is there; the other buffers are free
        __syncthreads();
        const int i0 = next_i0;
        float* const dQ_here = dQ_sum + (int64_t{head} * padded + i0) * d;
        next_i0 = i0 + Br < N_q ? i0 + Br : first;
        head += next_i0 == first; // the group's next one
        if (step + 1 < steps) {
            start_queries(1 - now);
        }
        float S_reg[M][Br / 8][4] = {}, dP_reg[M][Br / 8][4] = {}; // S^T and dP^T, C fragments
        multiply<T, Tiles>(S_reg, own, smem.K, smem.Q[now]);
        const auto* rows = smem.rows[now]; // in fragment n, the lane's two are at 4n + t
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            for (int c = 0; c < 4; ++c) {
                const float LSE_log2 = rows[4 * n + t].LSE_log2[c % 2];
                for (int i = 0; i < M; ++i) {
                    const float x = fmaf(S_reg[i][n][c], scale * flash::log2_e, -LSE_log2);
                    S_reg[i][n][c] = flash::fast_exp2(-fabsf(x));
                }
            }
        }
        if (step > 0) { // exp needs other units than these products
            add_to_dQ<T, Tiles>(dQ_last, smem.dS[1 - now], smem.K);
        }
        multiply<T, Tiles>(dP_reg, own, smem.V, smem.dO[now]);
        // Row r of the tile of K is seen by the columns from r - on_diagonal on. Queries that pad a
        // tile add 0, as in backward_two_kernels. Keys that do would add dS times 0 to dQ, but
        // their dS = P (0 - delta) may be too large for fp16: they are hidden.
        const int on_diagonal = causal ? i0 + (N_kv - N_q) - j0 : Bc;
        if (keys < Bc || on_diagonal < Bc - 1) { // an edge
#pragma unroll
            for (int n = 0; n < Br / 8; ++n) {
                for (int c = 0; c < 4; ++c) {
                    const int column = 8 * n + 2 * t + c % 2;
                    for (int i = 0; i < M; ++i) {
                        const int row = row0 + 16 * i + c / 2 * 8;
                        if (row >= keys || row - on_diagonal > column) {
                            S_reg[i][n][c] = 0;
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            const float2 delta = *reinterpret_cast<const float2*>(rows[4 * n + t].delta);
            for (int i = 0; i < M; ++i) {
                for (int c = 0; c < 4; ++c) {
                    const float difference = dP_reg[i][n][c] - (c % 2 == 0 ? delta.x : delta.y);
                    dP_reg[i][n][c] = S_reg[i][n][c] * difference; // dS, in the place of dP
                }
            }
        }
        uint32_t P_reg[M][Br / 16][4], dS_reg[M][Br / 16][4]; // P^T and dS^T, rounded: A fragments
        for (int i = 0; i < M; ++i) {
            flash::pack_A<T>(P_reg[i], S_reg[i]);
            flash::pack_A<T>(dS_reg[i], dP_reg[i]);
        }
        publish<Tiles>(smem.dS[now], row0, dS_reg);
        accumulate<T, Tiles>(dV_reg, P_reg, smem.dO[now]);
        accumulate<T, Tiles>(dK_reg, dS_reg, smem.Q[now]);
        dQ_last = dQ_here;
    }
    __syncthreads(); // dS of the last tile is there
    add_to_dQ<T, Tiles>(dQ_last, smem.dS[(steps - 1) % 2], smem.K);
    for (int i = 0; i < M; ++i) {
        flash::store_rows(dK + KV_from, dK_reg[i], scale, row0 + 16 * i, keys);
        flash::store_rows(dV + KV_from, dV_reg[i], 1, row0 + 16 * i, keys);
    }
}

/// dQ, rounded and in rows: 32 rows per block. A thread makes 8 columns at a time of row i and of
/// row i + 8.
template <class T, int d>
__global__ void after(const float* dQ_sum, T* dQ, int N_q, int padded, float scale) {
    const int64_t head = blockIdx.x / (padded / 32);
    const int i = blockIdx.x % (padded / 32) * 32 + threadIdx.x / 64 * 16 + threadIdx.x % 8;
    if (i >= N_q) {
        return;
    }
    for (int x = threadIdx.x % 64 / 8 * 8; x < d; x += 64) {
        float rows[2][8];
        flash::rows_of_sum(rows, dQ_sum + (head * padded + i / 16 * 16) * d + 16 * x, i % 8);
        for (int r = 0; r < 2 && i + 8 * r < N_q; ++r) {
            *reinterpret_cast<uint4*>(dQ + (head * N_q + i + 8 * r) * d + x) =
                flash::pack_8<T>(rows[r], scale);
        }
    }
}

// 64: the largest Br
int64_t padded_to_tiles(const flash::Problem& p) { return flash::ceil_div(p.q_len, 64) * 64; }

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    constexpr int d = Tiles::d;
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int padded = flash::as_int(padded_to_tiles(p), "q-len");
    const int64_t rows = p.batch * p.heads * padded;
    const int blocks = flash::as_int(rows / 32, "batch x heads x q-len");
    flash::Workspace parts(workspace);
    TwoRows* const Rows = parts.part<TwoRows>(rows / 2, "LSE and delta");
    float* const dQ_sum = parts.part<float>(rows * d, "the sum of dQ");
    flash::launch(before<T, d>, blocks, 128, 0, O, LSE, dO, Rows, dQ_sum, N_q, padded);
    const int places =
        flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const auto order =
        flash::order_in_waves(p, p.kv_heads, flash::ceil_div(N_kv, Tiles::rows), places);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>), Q, K,
                  V, dO, static_cast<const TwoRows*>(Rows), dQ_sum, dK, dV, order, group, N_q,
                  padded, N_kv, p.scale, p.causal);
    flash::launch(after<T, d>, blocks, 128, 0, static_cast<const float*>(dQ_sum), dQ, N_q, padded,
                  p.scale);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    const int64_t rows = p.batch * p.heads * padded_to_tiles(p);
    return flash::part_bytes<TwoRows>(rows / 2) + flash::part_bytes<float>(rows * p.head_dim);
}

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        // 161 KiB at d = 128, which an RTX 4090 does not have
        using Most = Tiles<d, (d < 128 ? 4 : 8)>;
        const auto fits = sizeof(Shared<Most>) <= flash::max_shared_memory_per_block()
                              ? run<T, Most>
                              : run<T, Tiles<d, 4>>;
        fits(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_one_kernel
