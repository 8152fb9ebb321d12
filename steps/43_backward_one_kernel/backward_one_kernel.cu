// backward_one_kernel: the backward pass in one kernel, which adds to dQ by atomics.
//
// The idea: backward_two_kernels computed S and dP twice, because dQ belongs to queries, and dK and
// dV belong to keys. Here a block owns keys, as in its second kernel, and uses dS for dQ as well:
// five products in place of seven. Each block has a part of every dQ. So dQ is a sum in fp32
// memory, to which all blocks add by atomics. Their order depends on the run, and so do its last
// bits. (Dao and others, "FlashAttention", 2022: five products; Dao, "FlashAttention-2", 2023.)
// Look at: add_to_dQ. dS^T passes through shared memory, as dQ needs all keys of the tile, and dQ
// is made one tile late: so one barrier per tile is enough. Counters: mma, barriers, atomics'
// sectors.
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

/// A block owns Bc keys, 16 M per warp, and walks along the queries in tiles of Br. Two warps share
/// 16 rows of dQ.
template <int d_, int warps> struct Tiles {
    static constexpr int d = d_, threads = 32 * warps, M = d < 128 ? 2 : 1, Bc = 16 * M * warps,
                         Br = 8 * warps;
    using KV = flash::SwizzledTile<d, Bc>;
    using Q = flash::SwizzledTile<d, Br>;
    using dS = flash::SwizzledTile<Br, Bc>; // transposed: a row is a key
    static constexpr int bytes = 2 * KV::bytes + 4 * Q::bytes + 2 * dS::bytes + 2 * Br * 8;
};

/// What the loop must know of rows 2r and 2r + 1 of Q: LSE in units of log2, and delta; 0 in rows
/// that pad a tile.
struct alignas(16) TwoRows {
    float LSE_log2[2], delta[2];
};

/// C += A B^T: the warp's 16 M rows of A, and all rows of the tile B.
template <class T, class Tiles>
__device__ void multiply(float (&C)[Tiles::M][Tiles::Br / 8][4], const char* A_smem,
                         const char* B_smem) {
    const int A_lane = Tiles::KV::lane_of_A(16 * Tiles::M * (threadIdx.x / 32), threadIdx.x % 32);
    const int B_lane = Tiles::Q::lane_of_B(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Tiles::d / 16; ++k) {
        uint32_t A_reg[Tiles::M][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < Tiles::M; ++i) {
            flash::ldmatrix_x4(A_reg[i], A_smem + Tiles::KV::fragment(A_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Tiles::Br / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4(B_reg, B_smem + Tiles::Q::fragment(B_lane, 8 * n, k));
            for (int i = 0; i < Tiles::M; ++i) {
                flash::mma_m16n8k16<T>(C[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(C[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// Sum += P B: rounded, two C fragments side by side are an A fragment, whose registers are rows g
/// and g + 8 of each.
template <class T, class Tiles>
__device__ void accumulate(float (&Sum)[Tiles::M][Tiles::d / 8][4],
                           const uint32_t (&P)[Tiles::M][Tiles::Br / 8][2], const char* B_smem) {
    const int B_lane = Tiles::Q::lane_of_A(0, threadIdx.x % 32); // B transposed is named as A is
#pragma unroll
    for (int k = 0; k < Tiles::Br / 16; ++k) {
#pragma unroll
        for (int n = 0; n < Tiles::d / 8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(B_reg, B_smem + Tiles::Q::fragment(B_lane, 16 * k, n / 2));
            for (int i = 0; i < Tiles::M; ++i) {
                const uint32_t A_reg[] = {P[i][2 * k][0], P[i][2 * k][1], P[i][2 * k + 1][0],
                                          P[i][2 * k + 1][1]};
                flash::mma_m16n8k16<T>(Sum[i][n], A_reg, {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(Sum[i][n + 1], A_reg, {B_reg[2], B_reg[3]});
            }
        }
    }
}

/// dS^T to shared memory: there all warps can read it.
template <class Tiles>
__device__ void publish(char* dS_smem, const uint32_t (&dS)[Tiles::M][Tiles::Br / 8][2]) {
    const int row0 = 16 * Tiles::M * (threadIdx.x / 32) + threadIdx.x % 32 / 4;
    // 8 rows further down, the swizzle is the same
    const int to = Tiles::dS::offset(row0, 0) + threadIdx.x % 4 * 4;
    for (int r = 0; r < 2 * Tiles::M; ++r) {
#pragma unroll
        for (int n = 0; n < Tiles::Br / 8; ++n) {
            *reinterpret_cast<uint32_t*>(dS_smem + (to ^ 16 * n) + 8 * r * Tiles::dS::row_bytes) =
                dS[r / 2][n][r % 2];
        }
    }
}

/// dQ += dS K over the block's keys: 16 I rows and d / 2I columns per warp. dQ_sum is where the
/// tile's rows begin. There, 16 rows by 8 columns are 128 floats in the order of a C fragment:
/// lanes add side by side.
template <class T, class Tiles>
__device__ void add_to_dQ(float* dQ_sum, const char* dS_smem, const char* K_smem) {
    constexpr int I = Tiles::d < 128 ? 1 : 2, n8 = Tiles::d / (16 * I); // fragments of 8 columns
    const int lane = threadIdx.x % 32, rows16 = threadIdx.x / (64 * I) * I,
              part = threadIdx.x / 32 % (2 * I);
    // dS^T becomes dS as ldmatrix transposes it: keys are rows in memory, and columns of A.
    const int A_lane = Tiles::dS::lane_of_B(lane), B_lane = Tiles::KV::lane_of_A(0, lane);
    float dQ_reg[I][n8][4] = {};
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        uint32_t A_reg[I][4];
        for (int i = 0; i < I; ++i) {
            flash::ldmatrix_x4_trans(A_reg[i],
                                     dS_smem + Tiles::dS::fragment(A_lane, 16 * k, rows16 + i));
        }
#pragma unroll
        for (int n = 0; n < n8; n += 2) {
            uint32_t B_reg[4];
            flash::ldmatrix_x4_trans(
                B_reg, K_smem + Tiles::KV::fragment(B_lane, 16 * k, (part * n8 + n) / 2));
            for (int i = 0; i < I; ++i) {
                flash::mma_m16n8k16<T>(dQ_reg[i][n], A_reg[i], {B_reg[0], B_reg[1]});
                flash::mma_m16n8k16<T>(dQ_reg[i][n + 1], A_reg[i], {B_reg[2], B_reg[3]});
            }
        }
    }
    dQ_sum += 16 * rows16 * Tiles::d + 128 * part * n8;
#pragma unroll
    for (int f = 0; f < I * n8; ++f) {
        flash::add_to_sum(dQ_sum + 16 * (f / n8) * Tiles::d + 128 * (f % n8),
                          dQ_reg[f / n8][f % n8]);
    }
}

/// LSE and delta of every row, and zeros for dQ: 32 rows per block, with four lanes per row.
template <class T, int d>
__global__ void before(const T* O, const float* LSE, const T* dO, TwoRows* Rows, float* dQ_sum,
                       int N_q, int padded) {
    const int64_t head = blockIdx.x / (padded / 32),
                  row = int64_t{blockIdx.x} * 32 + threadIdx.x / 4;
    const int i = blockIdx.x % (padded / 32) * 32 + threadIdx.x / 4;
    const int64_t from = (head * N_q + i) * d;
    float delta = 0;
    for (int x = 8 * (threadIdx.x % 4); x < d && i < N_q; x += 32) {
        delta += flash::dot<T>(*reinterpret_cast<const uint4*>(dO + from + x),
                               *reinterpret_cast<const uint4*>(O + from + x));
    }
    delta = flash::row_sum(delta);
    if (threadIdx.x % 4 == 0) {
        Rows[row / 2].LSE_log2[row % 2] = i < N_q ? LSE[head * N_q + i] * flash::log2_e : 0.0f;
        Rows[row / 2].delta[row % 2] = delta;
    }
    for (int x = 4 * (threadIdx.x % 4); x < d; x += 16) {
        *reinterpret_cast<float4*>(dQ_sum + row * d + x) = make_float4(0, 0, 0, 0);
    }
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the queries
/// of its heads.
template <class T, class Tiles>
__global__
__launch_bounds__(Tiles::threads) void gradients(const T* Q, const T* K, const T* V, const T* dO,
                                                 const TwoRows* Rows, float* dQ_sum, T* dK, T* dV,
                                                 flash::TileOrder order, int group, int N_q,
                                                 int padded, int N_kv, float scale, bool causal) {
    constexpr int d = Tiles::d, M = Tiles::M, Bc = Tiles::Bc, Br = Tiles::Br,
                  Q_bytes = Tiles::Q::bytes;
    const int t = threadIdx.x % 4; // columns 2t and 2t + 1 of C
    // its first row in the tile of K
    const int row0 = 16 * M * (threadIdx.x / 32) + threadIdx.x % 32 / 4;
    char* K_smem = flash::dynamic_shared<char>();
    char* V_smem = K_smem + Tiles::KV::bytes;
    char* Q_smem = V_smem + Tiles::KV::bytes; // two tiles, and two of dO
    char* dO_smem = Q_smem + 2 * Q_bytes;
    char* dS_smem = dO_smem + 2 * Q_bytes;
    TwoRows* Rows_smem = reinterpret_cast<TwoRows*>(dS_smem + 2 * Tiles::dS::bytes); // of two tiles

    // numbered as tiles of Q, whose last is the longest
    const auto [kv_head, tile] = flash::tile_of(blockIdx.x, order);
    const int j0 = (order.Tr - 1 - tile) * Bc; // of K it is the first
    const int64_t KV_from = (int64_t{kv_head} * N_kv + j0) * d;
    const int keys = min(Bc, N_kv - j0);

    // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
    // tile to begin with.
    const int first = causal ? max(0, j0 - (N_kv - N_q)) / Br * Br : 0;
    const int steps = group * ((N_q - first + Br - 1) / Br);
    // of the tile to be fetched next; i0: its first query
    int head = kv_head * group, next_i0 = first;
    const auto start_queries = [&](int buffer) { // 0 or 1
        const int64_t from = (int64_t{head} * N_q + next_i0) * d;
        if (const int r = threadIdx.x; r < Br / 2) {
            flash::cp_async_16(Rows_smem + buffer * Br / 2 + r,
                               Rows + (int64_t{head} * padded + next_i0) / 2 + r);
        }
        flash::start_tile<d, Br, Tiles::threads>(Q_smem + buffer * Q_bytes, Q + from,
                                                 N_q - next_i0);
        flash::start_tile<d, Br, Tiles::threads>(dO_smem + buffer * Q_bytes, dO + from,
                                                 N_q - next_i0);
        flash::cp_async_commit();
    };
    flash::start_tile<d, Bc, Tiles::threads>(K_smem, K + KV_from, keys);
    flash::start_tile<d, Bc, Tiles::threads>(V_smem, V + KV_from, keys);
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
        next_i0 = i0 + Br < N_q ? i0 + Br : first, head += next_i0 == first;
        if (step + 1 < steps) {
            start_queries(1 - now);
        }
        float S_reg[M][Br / 8][4] = {}, dP_reg[M][Br / 8][4] = {}; // S^T and dP^T, C fragments
        multiply<T, Tiles>(S_reg, K_smem, Q_smem + now * Q_bytes);
        const TwoRows* rows = Rows_smem + now * Br / 2 + t;
// all elements, those of a column of two fragments first
#pragma unroll
        for (int e = 0; e < M * Br / 2; ++e) {
            float& s = S_reg[e % M][e / M / 4][e / M % 4];
            s = flash::fast_exp2(
                fmaf(s, scale * flash::log2_e, -rows[e / M / 4 * 4].LSE_log2[e / M % 2]));
        }
        if (step > 0) { // exp needs other units than these products
            add_to_dQ<T, Tiles>(dQ_last, dS_smem + (1 - now) * Tiles::dS::bytes, K_smem);
        }
        multiply<T, Tiles>(dP_reg, V_smem, dO_smem + now * Q_bytes);
        // Row r of the tile of K is seen by the columns from r - on_diagonal on. Queries that pad a
        // tile add 0, as in backward_two_kernels. Keys that do would add dS times 0 to dQ, but
        // nothing keeps their P finite: they are hidden.
        const int on_diagonal = causal ? i0 + (N_kv - N_q) - j0 : Bc;
        if (keys < Bc || on_diagonal < Bc - 1) { // an edge
#pragma unroll
            for (int e = 0; e < M * Br / 2; ++e) {
                const int row = row0 + e % M * 16 + e / M / 2 % 2 * 8,
                          column = e / M / 4 * 8 + 2 * t + e / M % 2;
                if (row >= keys || row - on_diagonal > column) {
                    // chosen: P of a row that sees no key is infinite
                    S_reg[e % M][e / M / 4][e / M % 4] = 0;
                }
            }
        }
        // P^T and dS^T, rounded: halves of A fragments
        uint32_t P_reg[M][Br / 8][2], dS_reg[M][Br / 8][2];
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            const float2 delta = *reinterpret_cast<const float2*>(rows[4 * n].delta);
            for (int r = 0; r < 2 * M; ++r) {
                const float *P = S_reg[r / 2][n] + r % 2 * 2, *dP = dP_reg[r / 2][n] + r % 2 * 2;
                P_reg[r / 2][n][r % 2] = flash::pack<T>(P[0], P[1]);
                dS_reg[r / 2][n][r % 2] =
                    flash::pack<T>(P[0] * (dP[0] - delta.x), P[1] * (dP[1] - delta.y));
            }
        }
        publish<Tiles>(dS_smem + now * Tiles::dS::bytes, dS_reg);
        accumulate<T, Tiles>(dV_reg, P_reg, dO_smem + now * Q_bytes);
        accumulate<T, Tiles>(dK_reg, dS_reg, Q_smem + now * Q_bytes);
        dQ_last = dQ_here;
    }
    __syncthreads(); // dS of the last tile is there
    add_to_dQ<T, Tiles>(dQ_last, dS_smem + (steps - 1) % 2 * Tiles::dS::bytes, K_smem);
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
    const int places = flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, Tiles::bytes);
    const auto order =
        flash::order_in_waves(p, p.kv_heads, flash::ceil_div(N_kv, Tiles::Bc), places);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, Tiles::bytes, Q, K, V, dO,
                  static_cast<const TwoRows*>(Rows), dQ_sum, dK, dV, order, group, N_q, padded,
                  N_kv, p.scale, p.causal);
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
        const auto fits = Most::bytes <= flash::max_shared_memory_per_block() ? run<T, Most>
                                                                              : run<T, Tiles<d, 4>>;
        fits(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_one_kernel
