// backward_two_kernels: The backward pass on tensor cores, in two kernels and without an atomic.
//
// The idea: dQ is a sum over keys, dK and dV are sums over queries. A block can keep one of the two
// kinds in registers while it walks along the other side. So there are two kernels, and each sum
// has one owner that adds it up in a fixed order: the same bits in every run. The price is that S
// and dP are computed twice: seven products in place of five.
//
// The second kernel computes S^T = K Q^T. Its C fragments are P^T and dS^T just as dV = P^T dO and
// dK = dS^T Q want them on their left, so neither leaves its registers.
//
// A new kernel. It has the formulas of backward_cpu and the tools of its parent, lean_softmax:
// tiles in shared memory that cp.async loads ahead, products by mma.sync, P by exp2. LSE replaces
// the running maximum and sum.
// Look at: gradients_of_K_V, where `row` is a key and `column` a query. Counter: mma.
// First published: Triton's tutorial of fused attention has the same two loops.
#include "steps/42_backward_two_kernels/backward_two_kernels.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/unpack.hpp"

namespace backward_two_kernels {
namespace {

constexpr int warps = 4, threads = 32 * warps;

/// A block owns `rows` rows of one side, 16 M per warp, and walks along the other side in tiles of
/// `along` rows. What a warp keeps in registers decides: one sum and two tiles of scores in the
/// first kernel, two sums in the second.
template <int d_, int M_, int along_> struct Tiles {
    static constexpr int d = d_, M = M_, along = along_;
    static constexpr int rows = 16 * M * warps;
    using Owned = flash::SwizzledTile<d, rows>;
    using Walked = flash::SwizzledTile<d, along>;
};
// of gradient_of_Q: it owns Br = rows queries, and walks along Bc = along keys at a time
template <int d> using TilesOfQ = Tiles<d, 2, (d < 128 ? 64 : 32)>;
// of gradients_of_K_V: it owns Bc = rows keys
template <int d> using TilesOfKV = Tiles<d, (d < 128 ? 2 : 1), (d < 128 ? 32 : 64)>;

/// What both kernels must know of a row of Q: LSE in units of log2, and delta. Both are 0 in rows
/// that pad a tile.
struct alignas(8) Row {
    float LSE_log2, delta;
};

/// Shared memory of the two kernels, 96 KiB at d = 128: even and odd tiles of the way have buffers
/// of their own.
template <class Tiles> struct SharedOfQ {
    typename Tiles::Owned Q, dO;
    typename Tiles::Walked K[2], V[2];
};
template <class Tiles> struct SharedOfKV {
    typename Tiles::Owned K, V;
    typename Tiles::Walked Q[2], dO[2];
    Row rows[2][Tiles::along];
};

/// An element of S becomes P, and one of dP becomes dS = P (dP - delta). A score is at most LSE,
/// and P at most 1. Where both are large, rounding may say otherwise by far: so the sign of their
/// difference is not asked. (The exponential takes its operand as -|x| at no cost.)
__device__ inline void to_P_and_dS(float& S, float& dP, Row row, float scale, bool hidden) {
    const float P = flash::fast_exp2(-fabsf(fmaf(S, scale * flash::log2_e, -row.LSE_log2)));
    S = hidden ? 0.0f : P;
    dP = S * (dP - row.delta);
}

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

/// dQ = scale dS K: one block per tile of Q. It also notes LSE and delta of its rows for the second
/// kernel.
template <class T, int d>
__global__ __launch_bounds__(threads, 2) // threads, and blocks on an SM
    void gradient_of_Q(const T* Q, const T* K, const T* V, const T* O, const float* LSE,
                       const T* dO, T* dQ, Row* Rows, flash::TileOrder order, int group, int N_q,
                       int N_kv, float scale, bool causal) {
    using Tiles = TilesOfQ<d>;
    constexpr int M = Tiles::M, Br = Tiles::rows, Bc = Tiles::along;
    auto& smem = *flash::dynamic_shared<SharedOfQ<Tiles>>();
    const int own = 16 * M * (threadIdx.x / 32); // the warp's first row in the tile of Q
    const int row0 = own + threadIdx.x % 32 / 4; // the lane's rows: this one and every 8th
    const int t = threadIdx.x % 4;               // its columns in a C fragment: 2t and 2t + 1

    const auto [head, tile] = flash::tile_of(blockIdx.x, order);
    const int i0 = tile * Br;
    const int64_t KV_from = int64_t{head / group} * N_kv * d,
                  Q_from = (int64_t{head} * N_q + i0) * d;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;
    const int whole = min(N_kv, first_row_keys); // keys that every row of the block sees

    const auto start_keys = [&](int j0, int buffer) { // buffer: 0 or 1
        const int64_t from = KV_from + int64_t{j0} * d;
        flash::start_tile<threads>(smem.K[buffer], K + from, N_kv - j0);
        flash::start_tile<threads>(smem.V[buffer], V + from, N_kv - j0);
        flash::cp_async_commit();
    };
    flash::start_tile<threads>(smem.Q, Q + Q_from, rows);
    flash::start_tile<threads>(smem.dO, dO + Q_from, rows);
    start_keys(0, 0); // one group: Q, dO, and K and V of the first tile

    Row Row_reg[2 * M]; // of the lane's rows
    for (int r = 0; r < 2 * M; ++r) {
        const int row = row0 + 8 * r;
        const float delta =
            delta_of_row<T, d>(dO + Q_from + row * d, O + Q_from + row * d, row < rows);
        Row_reg[r] = {row < rows ? LSE[int64_t{head} * N_q + i0 + row] * flash::log2_e : 0.0f,
                      delta};
        if (t == 0) {
            Rows[int64_t{head} * order.Tr * Br + i0 + row] = Row_reg[r];
        }
    }

    float dQ_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int now = j0 / Bc % 2; // which of the two buffers
        flash::cp_async_wait<0>();   // this thread's copies of tile j0 have landed
        // so have all other threads'; and no warp still reads the tile before, in the other buffer
        __syncthreads();
        if (j0 + Bc < keys) {
            start_keys(j0 + Bc, 1 - now);
        }
        float S_reg[M][Bc / 8][4] = {}, dP_reg[M][Bc / 8][4] = {}; // dP becomes dS in its place
        multiply<T, Tiles>(S_reg, own, smem.Q, smem.K[now]);
        multiply<T, Tiles>(dP_reg, own, smem.dO, smem.V[now]);
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            for (int i = 0; i < M; ++i) {
                for (int c = 0; c < 4; ++c) {
                    const int row = row0 + 16 * i + c / 2 * 8, column = 8 * n + 2 * t + c % 2;
                    const int visible = min(N_kv - j0, first_row_keys + row - j0);
                    const bool hidden = j0 + Bc > whole && column >= visible;
                    to_P_and_dS(S_reg[i][n][c], dP_reg[i][n][c], Row_reg[2 * i + c / 2], scale,
                                hidden);
                }
            }
        }
        uint32_t dS_reg[M][Bc / 16][4]; // rounded: A fragments, 16 rows x 16 keys each
        for (int i = 0; i < M; ++i) {
            flash::pack_A<T>(dS_reg[i], dP_reg[i]);
        }
        accumulate<T, Tiles>(dQ_reg, dS_reg, smem.K[now]);
    }
    // with no key to see, Q is still landing: a block must not leave before its copies have
    flash::cp_async_wait<0>();
    for (int i = 0; i < M; ++i) {
        flash::store_rows(dQ + Q_from, dQ_reg[i], scale, row0 + 16 * i, rows);
    }
}

/// dK = scale dS^T Q and dV = P^T dO: one block per tile of K and V, along the tiles of Q of every
/// head of the group.
template <class T, int d>
__global__ __launch_bounds__(threads, 2) // threads, and blocks on an SM
    void gradients_of_K_V(const T* Q, const T* K, const T* V, const T* dO, const Row* Rows, T* dK,
                          T* dV, flash::TileOrder order, int group, int N_q, int padded, int N_kv,
                          float scale, bool causal) {
    using Tiles = TilesOfKV<d>;
    constexpr int M = Tiles::M, Bc = Tiles::rows, Br = Tiles::along;
    auto& smem = *flash::dynamic_shared<SharedOfKV<Tiles>>();
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

    const auto start_queries = [&](int step, int buffer) { // buffer: 0 or 1
        const int64_t head = int64_t{kv_head} * group + step / tiles;
        const int i0 = first + step % tiles * Br;
        if (const int r = 2 * threadIdx.x; r < Br) { // two rows in 16 bytes
            flash::cp_async_16(smem.rows[buffer] + r, Rows + head * padded + i0 + r);
        }
        flash::start_tile<threads>(smem.Q[buffer], Q + (head * N_q + i0) * d, N_q - i0);
        flash::start_tile<threads>(smem.dO[buffer], dO + (head * N_q + i0) * d, N_q - i0);
        flash::cp_async_commit();
    };
    flash::start_tile<threads>(smem.K, K + KV_from, keys);
    flash::start_tile<threads>(smem.V, V + KV_from, keys);
    start_queries(0, 0); // one group: K, V, and the first tile

    float dK_reg[M][d / 8][4] = {}, dV_reg[M][d / 8][4] = {}; // C fragments
    for (int step = 0; step < steps; ++step) {
        const int now = step % 2;  // which of the two buffers
        flash::cp_async_wait<0>(); // this thread's copies of the tile have landed
        // so have all other threads'; and no warp still reads the tile before, in the other buffer
        __syncthreads();
        if (step + 1 < steps) {
            start_queries(step + 1, 1 - now);
        }
        const int i0 = first + step % tiles * Br;
        // Row r of the tile of K is seen by the columns from r - on_diagonal on. Rows of padding
        // have Q = dO = 0: they add P times 0 to dV, and dS = P (0 - 0) = 0 times 0 to dK.
        const int on_diagonal = i0 + (N_kv - N_q) - j0;
        const bool edge = causal && on_diagonal < Bc - 1;

        float S_reg[M][Br / 8][4] = {}, dP_reg[M][Br / 8][4] = {}; // S^T and dP^T, C fragments
        multiply<T, Tiles>(S_reg, own, smem.K, smem.Q[now]);
        multiply<T, Tiles>(dP_reg, own, smem.V, smem.dO[now]);
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            // the rows of columns 2t and 2t + 1
            const float4 two = *reinterpret_cast<const float4*>(smem.rows[now] + 8 * n + 2 * t);
            const Row of_column[2] = {{two.x, two.y}, {two.z, two.w}};
            for (int i = 0; i < M; ++i) {
                for (int c = 0; c < 4; ++c) {
                    const int row = row0 + 16 * i + c / 2 * 8, column = 8 * n + 2 * t + c % 2;
                    const bool hidden = edge && row - on_diagonal > column;
                    to_P_and_dS(S_reg[i][n][c], dP_reg[i][n][c], of_column[c % 2], scale, hidden);
                }
            }
        }
        uint32_t P_reg[M][Br / 16][4], dS_reg[M][Br / 16][4]; // P^T and dS^T, rounded: A fragments
        for (int i = 0; i < M; ++i) {
            flash::pack_A<T>(P_reg[i], S_reg[i]);
            flash::pack_A<T>(dS_reg[i], dP_reg[i]);
        }
        accumulate<T, Tiles>(dV_reg, P_reg, smem.dO[now]);
        accumulate<T, Tiles>(dK_reg, dS_reg, smem.Q[now]);
    }
    for (int i = 0; i < M; ++i) {
        flash::store_rows(dK + KV_from, dK_reg[i], scale, row0 + 16 * i, keys);
        flash::store_rows(dV + KV_from, dV_reg[i], 1, row0 + 16 * i, keys);
    }
}

/// Rows of all heads, padded to whole tiles of Q; they are as large for every head dim.
int64_t rows_with_padding(const flash::Problem& p) {
    return p.batch * p.heads * flash::ceil_div(p.q_len, TilesOfQ<32>::rows) * TilesOfQ<32>::rows;
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    return flash::part_bytes<Row>(rows_with_padding(p));
}

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    Row* const Rows = flash::Workspace(workspace).part<Row>(rows_with_padding(p), "LSE and delta");

    flash::for_head_dim<head_dims>(p.head_dim, [&](auto head_dim) {
        constexpr int d = head_dim;
        constexpr int Q_bytes = sizeof(SharedOfQ<TilesOfQ<d>>);
        constexpr int KV_bytes = sizeof(SharedOfKV<TilesOfKV<d>>);
        const auto Q_order =
            flash::order_in_waves(p, p.heads, flash::ceil_div(N_q, TilesOfQ<d>::rows),
                                  flash::resident_blocks(gradient_of_Q<T, d>, threads, Q_bytes));
        const auto KV_order = flash::order_in_waves(
            p, p.kv_heads, flash::ceil_div(N_kv, TilesOfKV<d>::rows),
            flash::resident_blocks(gradients_of_K_V<T, d>, threads, KV_bytes));
        flash::launch(gradient_of_Q<T, d>, Q_order.blocks(), threads, Q_bytes, Q, K, V, O, LSE, dO,
                      dQ, Rows, Q_order, group, N_q, N_kv, p.scale, p.causal);
        flash::launch(gradients_of_K_V<T, d>, KV_order.blocks(), threads, KV_bytes, Q, K, V, dO,
                      static_cast<const Row*>(Rows), dK, dV, KV_order, group, N_q,
                      Q_order.Tr * TilesOfQ<d>::rows, N_kv, p.scale, p.causal);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_two_kernels
