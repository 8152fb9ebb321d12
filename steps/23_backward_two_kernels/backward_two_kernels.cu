// Rung 23: the backward pass on tensor cores, in two kernels and without an atomic.
//
// The idea: dQ is a sum over keys, dK and dV are sums over queries. A block can keep one of the two kinds in registers
// while it walks along the other side. So there are two kernels, and each result has one owner that adds it up in a
// fixed order: the gradients are the same bits in every run. The price is S and dP computed twice: seven products in
// place of five. The second kernel computes S^T = K Q^T. Its C fragments are P^T and dS^T as dV = P^T dO and dK = dS^T
// Q want them on their left, so that neither leaves its registers. (FlashAttention's Triton backward pass has the same
// two loops; Dao, "FlashAttention-2", 2023, has one loop and adds to dQ by atomics.) Against rung 22: tiles in shared
// memory, loaded ahead by cp.async; products by mma.sync; P by exp2, as in rung 15. Against rung 15: no running maximum
// and no running sum. LSE, times log2(e), takes the maximum's place. Look at: gradients_of_K_V, where `row` is a key
// and `column` is a query. Gained: gradients at FlashAttention-2's speed, bit by bit the same in every run. Counter:
// mma, 7/2 of the forward's.
#include "steps/23_backward_two_kernels/backward_two_kernels.hpp"

#include <cmath>

#include "common/cuda/cp_async.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/ldmatrix.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/swizzle.hpp"
#include "common/cuda/unpack.hpp"

namespace step23 {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;

/// A block owns `own` rows of one side, 16 M per warp, and walks along the other side in tiles of `other` rows. What a
/// warp keeps in registers decides: one sum and two tiles of scores in the first kernel, two sums in the second.
template <int d> struct Q_side { // of gradient_of_Q: Br = own, Bc = other
    static constexpr int M = 2, own = 16 * M * warps, other = d < 128 ? 64 : 32;
};
template <int d> struct KV_side { // of gradients_of_K_V: Bc = own, Br = other
    static constexpr int M = d < 128 ? 2 : 1, own = 16 * M * warps, other = d < 128 ? 32 : 64;
};

/// What the second kernel must know of a row: LSE in units of log2, and delta. Both are 0 in rows that pad a tile.
struct alignas(8) Row {
    float LSE_log2, delta;
};

/// C += A B^T: the warp's 16 M rows of A, and all rows of the tile B.
template <class T, int d, class Side>
__device__ void multiply(float (&C)[Side::M][Side::other / 8][4], const char* A_smem, const char* B_smem) {
    using A_tile = flash::SwizzledTile<d, Side::own>;
    using B_tile = flash::SwizzledTile<d, Side::other>;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int A_lane = A_tile::offset(16 * Side::M * warp + lane % 16, lane / 16);
    const int B_lane = B_tile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t A_reg[Side::M][4]; // A fragments: 16 rows x 16 columns each
#pragma unroll
        for (int i = 0; i < Side::M; ++i) {
            flash::ldmatrix_x4(A_reg[i], A_smem + A_tile::fragment(A_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Side::other / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4(B_reg, B_smem + B_tile::fragment(B_lane, 8 * n, k));
#pragma unroll
            for (int i = 0; i < Side::M; ++i) {
                flash::mma_m16n8k16<T>(C[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(C[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// Sum += P B, where P are C fragments of `multiply`: rounded, two side by side are an A fragment.
template <class T, int d, class Side>
__device__ void accumulate(float (&Sum)[Side::M][d / 8][4], const float (&P)[Side::M][Side::other / 8][4],
                           const char* B_smem) {
    using B_tile = flash::SwizzledTile<d, Side::other>;
    const int lane = threadIdx.x % 32;
    const int B_lane = B_tile::offset(lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < Side::other / 16; ++k) {
        uint32_t P_reg[Side::M][4];
#pragma unroll
        for (int i = 0; i < Side::M; ++i) {
            for (int a = 0; a < 4; ++a) {
                const auto& C = P[i][2 * k + a / 2];
                P_reg[i][a] = flash::pack<T>(C[a % 2 * 2], C[a % 2 * 2 + 1]);
            }
        }
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(B_reg, B_smem + B_tile::fragment(B_lane, 16 * k, n / 2));
#pragma unroll
            for (int i = 0; i < Side::M; ++i) {
                flash::mma_m16n8k16<T>(Sum[i][n], P_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(Sum[i][n + 1], P_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// The warp's rows of a sum, times `factor`, to the rows of X from the block's first one on.
template <class T, int d, int M> __device__ void store(T* X, const float (&Sum)[M][d / 8][4], float factor, int rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < M; ++i) {
        for (int r = 0; r < 2; ++r) {
            const int row = 16 * M * (threadIdx.x / 32) + 16 * i + lane / 4 + 8 * r;
            if (row < rows) {
#pragma unroll
                for (int n = 0; n < d / 8; ++n) {
                    *reinterpret_cast<uint32_t*>(X + row * d + 8 * n + lane % 4 * 2) =
                        flash::pack<T>(Sum[i][n][2 * r] * factor, Sum[i][n][2 * r + 1] * factor);
                }
            }
        }
    }
}

/// This lane's part of the sum of dO O over a row: every fourth 16 bytes, from 16 t on.
template <class T, int d> __device__ float part_of_delta(const T* dO, const T* O) {
    float sum = 0;
#pragma unroll
    for (int x = 8 * (threadIdx.x % 4); x < d; x += 32) {
        const uint4 a = *reinterpret_cast<const uint4*>(dO + x), b = *reinterpret_cast<const uint4*>(O + x);
        const uint32_t a_reg[] = {a.x, a.y, a.z, a.w}, b_reg[] = {b.x, b.y, b.z, b.w};
        for (int c = 0; c < 4; ++c) {
            const float2 dO_x = flash::unpack<T>(a_reg[c]), O_x = flash::unpack<T>(b_reg[c]);
            sum = fmaf(dO_x.x, O_x.x, fmaf(dO_x.y, O_x.y, sum));
        }
    }
    return sum;
}

/// dQ = scale dS K: one block per tile of Q. It also notes LSE and delta of its rows for the second kernel.
template <class T, int d>
__global__ __launch_bounds__(threads, 2) void gradient_of_Q(const T* Q, const T* K, const T* V, const T* O,
                                                            const float* LSE, const T* dO, T* dQ, Row* Rows, int Tr,
                                                            int group, int N_q, int N_kv, float scale, bool causal) {
    using Side = Q_side<d>;
    constexpr int M = Side::M, Br = Side::own, Bc = Side::other;
    using Q_tile = flash::SwizzledTile<d, Br>;
    using KV_tile = flash::SwizzledTile<d, Bc>;
    const int g = threadIdx.x % 32 / 4;               // the lane's place in a fragment: row g and g + 8 of C,
    const int t = threadIdx.x % 4;                    // columns 2t and 2t + 1
    const int row0 = 16 * M * (threadIdx.x / 32) + g; // its first row in the tile of Q
    char* Q_smem = flash::dynamic_shared<char>();
    char* dO_smem = Q_smem + Q_tile::bytes;
    char* K_smem = dO_smem + Q_tile::bytes; // two tiles, and two of V
    char* V_smem = K_smem + 2 * KV_tile::bytes;

    // Head by head, so that blocks that run together share K and V in L2. With a mask the last tile is the longest.
    const int64_t head = blockIdx.x / Tr;
    const int i0 = (Tr - 1 - blockIdx.x % Tr) * Br;
    const int copy_row = threadIdx.x / (d / 8); // where the thread's first 16 bytes of a tile are
    const int copy_chunk = threadIdx.x % (d / 8);
    const int64_t KV_from = (head / group * N_kv + copy_row) * d + 8 * copy_chunk;
    const int64_t Q_from = (head * N_q + i0) * d;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;
    const int whole = min(N_kv, first_row_keys); // keys that every row of the block sees

    const auto start_tile = [&](int j0, int buffer) { // buffer: 0 or KV_tile::bytes
        const int to = buffer + KV_tile::offset(copy_row, copy_chunk);
        const int64_t from = KV_from + int64_t{j0} * d;
        flash::start_copy<d, Bc, threads>(K_smem + to, K + from, N_kv - copy_row - j0);
        flash::start_copy<d, Bc, threads>(V_smem + to, V + from, N_kv - copy_row - j0);
    };
    const int copy_to = Q_tile::offset(copy_row, copy_chunk);
    const int64_t copy_from = Q_from + copy_row * d + 8 * copy_chunk;
    flash::start_copy<d, Br, threads>(Q_smem + copy_to, Q + copy_from, rows - copy_row);
    flash::start_copy<d, Br, threads>(dO_smem + copy_to, dO + copy_from, rows - copy_row);
    if (keys > 0) {
        start_tile(0, 0);
    }
    flash::cp_async_commit(); // Q, dO, and K and V of the first tile

    float LSE_reg[M][2], delta_reg[M][2]; // of rows g and g + 8 of each m16 tile
#pragma unroll
    for (int i = 0; i < M; ++i) {
        for (int r = 0; r < 2; ++r) {
            const int row = row0 + 16 * i + 8 * r;
            const int64_t at = Q_from + row * d;
            delta_reg[i][r] = flash::row_sum(row < rows ? part_of_delta<T, d>(dO + at, O + at) : 0.0f);
            LSE_reg[i][r] = row < rows ? LSE[head * N_q + i0 + row] * flash::log2_e : 0.0f;
            if (t == 0) {
                Rows[head * Tr * Br + i0 + row] = {LSE_reg[i][r], delta_reg[i][r]};
            }
        }
    }

    float dQ_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int now = j0 / Bc % 2 * KV_tile::bytes; // which of the two buffers
        flash::cp_async_wait<0>();                    // this thread's copies of tile j0 have landed
        __syncthreads(); // so have all other threads'; and no warp still reads the tile before, in the other buffer
        if (j0 + Bc < keys) {
            start_tile(j0 + Bc, KV_tile::bytes - now);
            flash::cp_async_commit();
        }
        float S_reg[M][Bc / 8][4] = {}, dP_reg[M][Bc / 8][4] = {}; // dP becomes dS in its place
        multiply<T, d, Side>(S_reg, Q_smem, K_smem + now);
        multiply<T, d, Side>(dP_reg, dO_smem, V_smem + now);
#pragma unroll
        for (int i = 0; i < M; ++i) {
#pragma unroll
            for (int n = 0; n < Bc / 8; ++n) {
                for (int c = 0; c < 4; ++c) {
                    const int visible = first_row_keys + row0 + 16 * i + c / 2 * 8 - j0;
                    // A choice, not a product with 0: in a row that sees no key LSE is -inf, and P infinite.
                    const bool hidden = j0 + Bc > whole && 8 * n + 2 * t + c % 2 >= min(N_kv - j0, visible);
                    const float P = flash::fast_exp2(fmaf(S_reg[i][n][c], scale * flash::log2_e, -LSE_reg[i][c / 2]));
                    dP_reg[i][n][c] = hidden ? 0.0f : P * (dP_reg[i][n][c] - delta_reg[i][c / 2]);
                }
            }
        }
        accumulate<T, d, Side>(dQ_reg, dP_reg, K_smem + now);
    }
    flash::cp_async_wait<0>(); // with no key to see, Q is still landing: a block must not leave before its copies have
    store<T, d, M>(dQ + Q_from, dQ_reg, scale, rows);
}

/// dK = scale dS^T Q and dV = P^T dO: one block per tile of K and V, along the tiles of Q of every head of the group.
template <class T, int d>
__global__ __launch_bounds__(threads, 2) void gradients_of_K_V(const T* Q, const T* K, const T* V, const T* dO,
                                                               const Row* Rows, T* dK, T* dV, int Tc, int group,
                                                               int N_q, int N_q_padded, int N_kv, float scale,
                                                               bool causal) {
    using Side = KV_side<d>;
    constexpr int M = Side::M, Bc = Side::own, Br = Side::other;
    using KV_tile = flash::SwizzledTile<d, Bc>;
    using Q_tile = flash::SwizzledTile<d, Br>;
    const int t = threadIdx.x % 4;                                       // columns 2t and 2t + 1 of C
    const int row0 = 16 * M * (threadIdx.x / 32) + threadIdx.x % 32 / 4; // its first row in the tile of K
    char* K_smem = flash::dynamic_shared<char>();
    char* V_smem = K_smem + KV_tile::bytes;
    char* Q_smem = V_smem + KV_tile::bytes; // two tiles, and two of dO
    char* dO_smem = Q_smem + 2 * Q_tile::bytes;
    Row* Rows_smem = reinterpret_cast<Row*>(dO_smem + 2 * Q_tile::bytes); // of two tiles

    const int64_t kv_head = blockIdx.x / Tc;
    const int j0 = blockIdx.x % Tc * Bc; // with a mask the first tile is the longest
    const int copy_row = threadIdx.x / (d / 8);
    const int copy_chunk = threadIdx.x % (d / 8);
    const int64_t KV_from = (kv_head * N_kv + j0) * d;
    const int keys = min(Bc, N_kv - j0);

    // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a tile to begin with.
    const int first = causal ? max(0, j0 - (N_kv - N_q)) / Br * Br : 0;
    const int tiles = (N_q - first + Br - 1) / Br; // of one head
    const int steps = group * tiles;

    const auto start_tile = [&](int step, int buffer) { // buffer: 0 or 1
        const int64_t head = kv_head * group + step / tiles;
        const int i0 = first + step % tiles * Br;
        const int to = buffer * Q_tile::bytes + Q_tile::offset(copy_row, copy_chunk);
        const int64_t from = (head * N_q + i0 + copy_row) * d + 8 * copy_chunk;
        flash::start_copy<d, Br, threads>(Q_smem + to, Q + from, N_q - copy_row - i0);
        flash::start_copy<d, Br, threads>(dO_smem + to, dO + from, N_q - copy_row - i0);
        if (threadIdx.x < Br / 2) { // two rows in 16 bytes
            flash::cp_async_16(Rows_smem + buffer * Br + 2 * threadIdx.x,
                               Rows + head * N_q_padded + i0 + 2 * threadIdx.x);
        }
    };
    const int copy_to = KV_tile::offset(copy_row, copy_chunk);
    const int64_t copy_from = KV_from + copy_row * d + 8 * copy_chunk;
    flash::start_copy<d, Bc, threads>(K_smem + copy_to, K + copy_from, keys - copy_row);
    flash::start_copy<d, Bc, threads>(V_smem + copy_to, V + copy_from, keys - copy_row);
    start_tile(0, 0);
    flash::cp_async_commit(); // K, V, and the first tile

    float dK_reg[M][d / 8][4] = {}, dV_reg[M][d / 8][4] = {}; // C fragments
    for (int step = 0; step < steps; ++step) {
        const int now = step % 2;  // which of the two buffers
        flash::cp_async_wait<0>(); // this thread's copies of the tile have landed
        __syncthreads(); // so have all other threads'; and no warp still reads the tile before, in the other buffer
        if (step + 1 < steps) {
            start_tile(step + 1, 1 - now);
            flash::cp_async_commit();
        }
        const int i0 = first + step % tiles * Br;
        // Row r of the tile of K is seen by the columns from r - on_diagonal on. Rows of padding have Q = dO = 0: they
        // add P times 0 to dV, and dS = P (0 - 0) = 0 times 0 to dK.
        const int on_diagonal = i0 + (N_kv - N_q) - j0;
        const bool edge = causal && on_diagonal < Bc - 1;

        float P_reg[M][Br / 8][4] = {}, dS_reg[M][Br / 8][4] = {}; // at first S^T and dP^T
        multiply<T, d, Side>(P_reg, K_smem, Q_smem + now * Q_tile::bytes);
        multiply<T, d, Side>(dS_reg, V_smem, dO_smem + now * Q_tile::bytes);
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            const float4 two = *reinterpret_cast<const float4*>(Rows_smem + now * Br + 8 * n + 2 * t);
            const Row column[2] = {{two.x, two.y}, {two.z, two.w}};
#pragma unroll
            for (int i = 0; i < M; ++i) {
                for (int c = 0; c < 4; ++c) {
                    const bool hidden = edge && row0 + 16 * i + c / 2 * 8 - on_diagonal > 8 * n + 2 * t + c % 2;
                    const float P =
                        flash::fast_exp2(fmaf(P_reg[i][n][c], scale * flash::log2_e, -column[c % 2].LSE_log2));
                    P_reg[i][n][c] = hidden ? 0.0f : P;
                    dS_reg[i][n][c] = P_reg[i][n][c] * (dS_reg[i][n][c] - column[c % 2].delta);
                }
            }
        }
        accumulate<T, d, Side>(dV_reg, P_reg, dO_smem + now * Q_tile::bytes);
        accumulate<T, d, Side>(dK_reg, dS_reg, Q_smem + now * Q_tile::bytes);
    }
    store<T, d, M>(dK + KV_from, dK_reg, scale, keys);
    store<T, d, M>(dV + KV_from, dV_reg, 1, keys);
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE, const T* dO, T* dQ,
         T* dK, T* dV) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int kv_heads = flash::as_int(p.batch * p.kv_heads, "batch x kv-heads");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads"); // query heads to one K/V head
    const flash::DeviceBuffer<Row> Rows(workspace_bytes(p) / static_cast<int64_t>(sizeof(Row)), "LSE and delta");

    using Q_own = Q_side<d>; // 96 KiB at d = 128, and so has the second kernel, besides its rows
    constexpr int Q_bytes = (2 * Q_own::own + 4 * Q_own::other) * d * sizeof(T);
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Q_own::own));
    flash::launch(gradient_of_Q<T, d>, flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q"), threads,
                  Q_bytes, Q, K, V, O, LSE, dO, dQ, Rows.data(), Tr, group, N_q, N_kv, p.scale, p.causal);

    using KV_own = KV_side<d>;
    constexpr int KV_bytes = (2 * KV_own::own + 4 * KV_own::other) * d * sizeof(T) + 2 * KV_own::other * sizeof(Row);
    const int Tc = static_cast<int>(flash::ceil_div(N_kv, KV_own::own));
    flash::launch(gradients_of_K_V<T, d>, flash::as_int(int64_t{kv_heads} * Tc, "batch x kv-heads x tiles of K"),
                  threads, KV_bytes, Q, K, V, dO, static_cast<const Row*>(Rows.data()), dK, dV, Tc, group, N_q,
                  Tr * Q_own::own, N_kv, p.scale, p.causal);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    constexpr int64_t Br = Q_side<32>::own; // the same for every head dim
    return p.batch * p.heads * flash::ceil_div(p.q_len, Br) * Br * static_cast<int64_t>(sizeof(Row));
}

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
                        const T* dO, T* dQ, T* dK, T* dV) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE, dO, dQ, dK, dV); });
}

template void attention_backward(const flash::Problem&, const flash::Half*, const flash::Half*, const flash::Half*,
                                 const flash::Half*, const float*, const flash::Half*, flash::Half*, flash::Half*,
                                 flash::Half*);
template void attention_backward(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*,
                                 const flash::Bfloat16*, const flash::Bfloat16*, const float*, const flash::Bfloat16*,
                                 flash::Bfloat16*, flash::Bfloat16*, flash::Bfloat16*);

} // namespace step23
