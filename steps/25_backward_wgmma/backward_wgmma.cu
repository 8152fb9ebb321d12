// Rung 25: the backward pass by TMA and wgmma.
#include "steps/25_backward_wgmma/backward_wgmma.hpp"

#include <cmath>

#include "common/cuda/cp_async.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/mbarrier.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/swizzle.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/unpack.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"

namespace step25 {
namespace {

constexpr int warpgroup = 128;     // threads
constexpr int consumers = 2;       // warpgroups, with 64 keys each
constexpr int Bc = 64 * consumers; // keys
constexpr int slots = 2;           // tiles of Q, and of dO, that are in shared memory
constexpr int threads = warpgroup * (consumers + 1);
constexpr int consumer_registers = 240, producer_registers = 24;
template <int d> constexpr int Br = d == 64 ? 128 : 64; // queries

template <int d> using KV_tile = flash::SwizzledTile<d, Bc>;
template <int d> using Q_tile = flash::SwizzledTile<d, Br<d>>;
template <int d> using dS_tile = flash::SwizzledTile<Br<d>, Bc>; // its transpose: a row is a key

/// A tile's dQ, Br x d, is two parts of 64 x 64, one of each consumer: the rows of the tile, or else its columns,
/// halved.
constexpr int part = 64 * 64;

/// What the products must know of a query: LSE in units of log2, and delta. Both are 0 in rows that pad a tile.
struct alignas(8) Row {
    float LSE_log2, delta;
};

/// LSE and delta of each row, and zeros for its dQ. Four threads per row.
template <class T, int d>
__global__ __launch_bounds__(warpgroup) void prepare(const T* O, const float* LSE, const T* dO, Row* Rows,
                                                     float* dQ_sum, int N_q, int N_q_padded) {
    const int blocks_of_head = N_q_padded / (warpgroup / 4);
    const int64_t head = blockIdx.x / blocks_of_head;
    const int row = blockIdx.x % blocks_of_head * (warpgroup / 4) + threadIdx.x / 4;
    const int t = threadIdx.x % 4;
    const int64_t padded = head * N_q_padded + row, at = (head * N_q + row) * d;
    float delta = 0;
#pragma unroll
    for (int x = 8 * t; x < d; x += 32) {
        if (row < N_q) {
            const uint4 a = *reinterpret_cast<const uint4*>(dO + at + x),
                        b = *reinterpret_cast<const uint4*>(O + at + x);
            const uint32_t a_reg[] = {a.x, a.y, a.z, a.w}, b_reg[] = {b.x, b.y, b.z, b.w};
            for (int c = 0; c < 4; ++c) {
                const float2 dO_x = flash::unpack<T>(a_reg[c]), O_x = flash::unpack<T>(b_reg[c]);
                delta = fmaf(dO_x.x, O_x.x, fmaf(dO_x.y, O_x.y, delta));
            }
        }
    }
    delta = flash::row_sum(delta);
    if (t == 0) {
        Rows[padded] = {row < N_q ? LSE[head * N_q + row] * flash::log2_e : 0.0f, delta};
    }
#pragma unroll
    for (int x = 4 * t; x < d; x += 16) {
        *reinterpret_cast<float4*>(dQ_sum + padded * d + x) = {0, 0, 0, 0};
    }
}

/// Starts C = A B^T or, if `accumulate`, C += A B^T. k16 steps are 32 bytes apart in a panel of 64 columns.
template <class T, int d> __device__ void start_scores(float (&C)[Br<d> / 8][4], uint64_t A_desc, uint64_t B_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        const int panel = 128 * (k / 4);
        flash::wgmma_m64k16<T, Br<d>>(C, flash::advance(A_desc, panel * Bc + 32 * (k % 4)),
                                      flash::advance(B_desc, panel * Br<d> + 32 * (k % 4)), k > 0);
    }
    flash::wgmma_commit();
}

/// Starts Sum += P B, where P has been packed. 16 rows of B are 2048 bytes.
template <class T, int d>
__device__ void start_sum(float (&Sum)[d / 8][4], const uint32_t (&P_reg)[Br<d> / 16][4], uint64_t B_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Br<d> / 16; ++k) {
        flash::wgmma_m64k16<T, d, true>(Sum, P_reg[k], flash::advance(B_desc, 2048 * k));
    }
    flash::wgmma_commit();
}

/// Starts dQ = dS K of this warpgroup's part, whose left operand lies transposed in shared memory.
template <class T> __device__ void start_dQ(float (&dQ_reg)[8][4], uint64_t dS_desc, uint64_t K_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        flash::wgmma_m64k16<T, 64, true, true>(dQ_reg, flash::advance(dS_desc, 2048 * k),
                                               flash::advance(K_desc, 2048 * k), k > 0);
    }
    flash::wgmma_commit();
}

/// C fragments side by side, rounded, as A fragments.
template <class T, int k_tiles> __device__ void pack(uint32_t (&P_reg)[k_tiles][4], const float (&C)[2 * k_tiles][4]) {
#pragma unroll
    for (int n = 0; n < 2 * k_tiles; ++n) {
        P_reg[n / 2][n % 2 * 2] = flash::pack<T>(C[n][0], C[n][1]);
        P_reg[n / 2][n % 2 * 2 + 1] = flash::pack<T>(C[n][2], C[n][3]);
    }
}

/// A warp's rows of a sum, times `factor`, to the rows of X.
template <class T, int d> __device__ void store(T* X, const float (&Sum)[d / 8][4], float factor, int row0, int rows) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = row0 + 8 * r;
        if (row < rows) {
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(X + row * d + 8 * n + threadIdx.x % 4 * 2) =
                    flash::pack<T>(Sum[n][2 * r] * factor, Sum[n][2 * r + 1] * factor);
            }
        }
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, 1) void gradients(const __grid_constant__ flash::TensorMap Q,
                                                        const __grid_constant__ flash::TensorMap K,
                                                        const __grid_constant__ flash::TensorMap V,
                                                        const __grid_constant__ flash::TensorMap dO, const Row* Rows,
                                                        float* dQ_sum, T* dK, T* dV, int Tc, int group, int N_q, int Tr,
                                                        int N_kv, float scale, bool causal) {
    constexpr int Br = step25::Br<d>;
    char* K_smem = flash::dynamic_shared<char>();
    char* V_smem = K_smem + KV_tile<d>::bytes;
    char* Q_smem = V_smem + KV_tile<d>::bytes;
    char* dO_smem = Q_smem + slots * Q_tile<d>::bytes;
    char* dS_smem = dO_smem + slots * Q_tile<d>::bytes; // two tiles
    float* dQ_smem = reinterpret_cast<float*>(dS_smem + 2 * dS_tile<d>::bytes);
    Row* Rows_smem = reinterpret_cast<Row*>(dQ_smem + consumers * part);
    __shared__ uint64_t KV_full, Q_full[slots], Q_empty[slots], dO_full[slots], dO_empty[slots];

    const int64_t kv_head = blockIdx.x / Tc;
    const int j0 = blockIdx.x % Tc * Bc; // with a mask the first tile is the longest
    const int keys = min(Bc, N_kv - j0);
    // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a tile to begin with.
    const int first = causal ? max(0, j0 - (N_kv - N_q)) / Br : 0;
    const int tiles = Tr - first; // of one head

    if (threadIdx.x == 0) {
        flash::mbarrier_init(&KV_full, 1);
        for (int slot = 0; slot < slots; ++slot) {
            flash::mbarrier_init(&Q_full[slot], 1 + 32); // TMA's bytes, and each lane's rows
            flash::mbarrier_init(&dO_full[slot], 1);
            flash::mbarrier_init(&Q_empty[slot], 4 * consumers); // one arrival per warp
            flash::mbarrier_init(&dO_empty[slot], 4 * consumers);
        }
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all

    const int lane = threadIdx.x % 32;
    const int role = threadIdx.x / warpgroup;
    int slot = 0;
    int phase = 0;           // of `full` in this slot; `empty` is one behind, so that the first waits fall through
    if (role == consumers) { // the producer: one warp
        flash::give_registers<producer_registers>();
        if (threadIdx.x % warpgroup >= 32) {
            return;
        }
        if (lane == 0) {
            flash::mbarrier_expect_tx(&KV_full, 2 * KV_tile<d>::bytes);
            flash::tma_load<4>(K_smem, K, {0, j0, 0, static_cast<int>(kv_head)}, &KV_full);
            flash::tma_load<4>(V_smem, V, {0, j0, 0, static_cast<int>(kv_head)}, &KV_full);
        }
        for (int step = 0; step < group * tiles; ++step) {
            const int head = static_cast<int>(kv_head) * group + step / tiles;
            const int i0 = (first + step % tiles) * Br;
            flash::mbarrier_wait(&Q_empty[slot], phase ^ 1); // all warps have read the tile before, and its rows
            if (lane == 0) {
                flash::mbarrier_expect_tx(&Q_full[slot], Q_tile<d>::bytes);
                flash::tma_load<4>(Q_smem + slot * Q_tile<d>::bytes, Q, {0, i0, 0, head}, &Q_full[slot]);
            }
            for (int r = 2 * lane; r < Br; r += 64) { // two rows in 16 bytes
                flash::cp_async_16(Rows_smem + slot * Br + r, Rows + (int64_t{head} * Tr * Br + i0 + r));
            }
            flash::cp_async_mbarrier_arrive(&Q_full[slot]);
            flash::mbarrier_wait(&dO_empty[slot], phase ^ 1); // likewise
            if (lane == 0) {
                flash::mbarrier_expect_tx(&dO_full[slot], Q_tile<d>::bytes);
                flash::tma_load<4>(dO_smem + slot * Q_tile<d>::bytes, dO, {0, i0, 0, head}, &dO_full[slot]);
            }
            slot = (slot + 1) % slots;
            phase ^= slot == 0;
        }
        flash::cp_async_commit();
        flash::cp_async_wait<0>(); // a thread must not leave before its copies have landed
        return;
    }

    flash::take_registers<consumer_registers>();
    const int g = lane / 4; // the lane's place in a fragment: row g and g + 8 of A and C,
    const int t = lane % 4; // columns 2t and 2t + 1
    const int thread = threadIdx.x % warpgroup;
    const int row0 = 64 * role + thread / 32 * 16 + g; // its first row in the tile of K

    // On the left, of K and V: 64 rows. On the right: whole tiles, as they are for S and dP, transposed for the sums.
    const uint64_t K_rows = flash::wgmma_descriptor(K_smem + 64 * 128 * role, 0, 1024);
    const uint64_t V_rows = flash::wgmma_descriptor(V_smem + 64 * 128 * role, 0, 1024);
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 128 * Br, 1024);
    const uint64_t dO_desc = flash::wgmma_descriptor(dO_smem, 128 * Br, 1024);
    // A part of dQ: panel `role` of dS^T, 64 queries, or else panel `role` of K, 64 columns.
    const uint64_t dS_desc = flash::wgmma_descriptor(dS_smem + (Br == 128 ? 128 * Bc * role : 0), 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(K_smem + (d == 128 ? 128 * Bc * role : 0), 0, 1024);
    float* dQ_own = dQ_smem + role * part;

    float dK_reg[d / 8][4] = {}, dV_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    flash::mbarrier_wait(&KV_full, 0);
    for (int step = 0; step < group * tiles; ++step) {
        const int64_t head = kv_head * group + step / tiles;
        const int tile = first + step % tiles;
        const int Q_now = slot * Q_tile<d>::bytes;
        float S_reg[Br / 8][4], dP_reg[Br / 8][4];  // C fragments of S^T and dP^T: 16 keys x 8 queries each
        flash::mbarrier_wait(&Q_full[slot], phase); // the tile of Q has landed, and its rows
        start_scores<T, d>(S_reg, K_rows, flash::advance(Q_desc, Q_now));
        flash::mbarrier_wait(&dO_full[slot], phase); // the tile of dO has landed
        start_scores<T, d>(dP_reg, V_rows, flash::advance(dO_desc, Q_now));
        flash::wgmma_wait<1>(S_reg);

        const Row* rows = Rows_smem + slot * Br;
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            for (int c = 0; c < 4; ++c) {
                const float LSE_log2 = rows[8 * n + 2 * t + c % 2].LSE_log2;
                S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale * flash::log2_e, -LSE_log2));
            }
        }
        // Row r of the tile of K is seen by the columns from r - on_diagonal on; one that pads the tile, by none.
        const int on_diagonal = tile * Br + (N_kv - N_q) - j0;
        if (keys < Bc || (causal && on_diagonal < Bc - 1)) { // an edge
#pragma unroll
            for (int n = 0; n < Br / 8; ++n) {
                for (int c = 0; c < 4; ++c) {
                    const int row = row0 + c / 2 * 8;
                    if (row >= keys || (causal && row - on_diagonal > 8 * n + 2 * t + c % 2)) {
                        S_reg[n][c] = 0; // a choice, not a product: in a row that sees no key P is infinite
                    }
                }
            }
        }
        uint32_t P_reg[Br / 16][4];
        pack<T>(P_reg, S_reg);
        start_sum<T, d>(dV_reg, P_reg, flash::advance(dO_desc, Q_now));

        flash::wgmma_wait<1>(dP_reg);
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            for (int c = 0; c < 4; ++c) {
                const float2 two = flash::unpack<T>(P_reg[n / 2][n % 2 * 2 + c / 2]);
                dP_reg[n][c] = (c % 2 ? two.y : two.x) * (dP_reg[n][c] - rows[8 * n + 2 * t + c % 2].delta);
            }
        }
        uint32_t dS_reg[Br / 16][4];
        pack<T>(dS_reg, dP_reg);
        const int dS_now = step % 2 * dS_tile<d>::bytes;
#pragma unroll
        for (int n = 0; n < Br / 8; ++n) {
            for (int r = 0; r < 2; ++r) {
                *reinterpret_cast<uint32_t*>(dS_smem + dS_now + dS_tile<d>::offset(row0 + 8 * r, n) + 4 * t) =
                    dS_reg[n / 2][n % 2 * 2 + r];
            }
        }
        flash::fence_proxy_async(); // wgmma sees what this thread has written,
        if (thread == 0) {
            flash::bulk_wait_read<0>(); // TMA has read this warpgroup's part of the last dQ,
        }
        flash::named_barrier_sync(1, warpgroup * consumers); // and the same for all other threads
        float dQ_reg[8][4];
        start_dQ<T>(dQ_reg, flash::advance(dS_desc, dS_now), K_desc);
        start_sum<T, d>(dK_reg, dS_reg, flash::advance(Q_desc, Q_now));

        flash::wgmma_wait<1>(dQ_reg); // and dV, which was started before
        if (lane == 0) {
            flash::mbarrier_arrive(&dO_empty[slot]); // this warp's products no longer read the tile of dO
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            *reinterpret_cast<float4*>(dQ_own + 4 * (warpgroup * n + thread)) = {dQ_reg[n][0], dQ_reg[n][1],
                                                                                 dQ_reg[n][2], dQ_reg[n][3]};
        }
        flash::fence_proxy_async();                     // TMA sees what this thread has written,
        flash::named_barrier_sync(2 + role, warpgroup); // and what the warpgroup's others have
        if (thread == 0) {
            flash::bulk_reduce_add(dQ_sum + ((head * Tr + tile) * consumers + role) * part, dQ_own, 4 * part);
            flash::bulk_commit();
        }
        flash::wgmma_wait<0>(dK_reg);
        if (lane == 0) {
            flash::mbarrier_arrive(&Q_empty[slot]); // this warp's products no longer read the tile of Q
        }
        slot = (slot + 1) % slots;
        phase ^= slot == 0;
    }
    flash::wgmma_wait<0>(dV_reg);
    store<T, d>(dK + (kv_head * N_kv + j0) * d, dK_reg, scale, row0, keys);
    store<T, d>(dV + (kv_head * N_kv + j0) * d, dV_reg, 1, row0, keys);
    if (thread == 0) {
        flash::bulk_wait_read<0>(); // a block must not leave before its dQ has been read
    }
}

/// dQ, scaled and rounded: one block per tile.
template <class T, int d>
__global__ __launch_bounds__(consumers* warpgroup) void finish(const float* dQ_sum, T* dQ, int Tr, int N_q,
                                                               float scale) {
    const int64_t head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br<d>;
    const int role = threadIdx.x / warpgroup;
    const int thread = threadIdx.x % warpgroup;
    const float* own = dQ_sum + (int64_t{blockIdx.x} * consumers + role) * part;
    const int row0 = (d == 64 ? 64 * role : 0) + thread / 32 * 16 + thread % 32 / 4;
    T* to = dQ + (head * N_q + i0) * d + (d == 128 ? 64 * role : 0) + thread % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const float4 C = *reinterpret_cast<const float4*>(own + 4 * (warpgroup * n + thread));
        if (row0 < N_q - i0) {
            *reinterpret_cast<uint32_t*>(to + row0 * d + 8 * n) = flash::pack<T>(C.x * scale, C.y * scale);
        }
        if (row0 + 8 < N_q - i0) {
            *reinterpret_cast<uint32_t*>(to + (row0 + 8) * d + 8 * n) = flash::pack<T>(C.z * scale, C.w * scale);
        }
    }
}

/// (H, N, d) as TMA sees it, {64, N, d / 64, H}, so that a tile arrives as panels of 64 columns, 128 bytes wide.
template <int d, class T> flash::TensorMap tensor_map(const T* tensor, int64_t heads, int64_t N, int rows) {
    return flash::make_tensor_map<4>(tensor, {64, N, d / 64, heads}, {d, 64, N * d}, {64, rows, d / 64, 1});
}

int64_t padded_rows(const flash::Problem& p) {
    const int64_t rows = p.head_dim == 64 ? Br<64> : Br<128>;
    return p.batch * p.heads * flash::ceil_div(p.q_len, rows) * rows;
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE, const T* dO, T* dQ,
         T* dK, T* dV) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int kv_heads = flash::as_int(p.batch * p.kv_heads, "batch x kv-heads");
    const int group = heads / kv_heads; // query heads to one K/V head
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br<d>));
    const int Tc = static_cast<int>(flash::ceil_div(N_kv, Bc));
    const flash::DeviceBuffer<Row> Rows(padded_rows(p), "LSE and delta");
    const flash::DeviceBuffer<float> dQ_sum(padded_rows(p) * d, "dQ in fp32");

    const int tiles = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    flash::launch(prepare<T, d>, flash::as_int(padded_rows(p) / (warpgroup / 4), "rows / 32"), warpgroup, 0, O, LSE, dO,
                  Rows.data(), dQ_sum.data(), N_q, Tr * Br<d>);
    constexpr int smem_bytes = 2 * KV_tile<d>::bytes + 2 * slots * Q_tile<d>::bytes + 2 * dS_tile<d>::bytes +
                               4 * consumers * part + slots * Br<d> * static_cast<int>(sizeof(Row));
    flash::launch(gradients<T, d>, flash::as_int(int64_t{kv_heads} * Tc, "batch x kv-heads x tiles of K"), threads,
                  smem_bytes, tensor_map<d>(Q, heads, N_q, Br<d>), tensor_map<d>(K, kv_heads, N_kv, Bc),
                  tensor_map<d>(V, kv_heads, N_kv, Bc), tensor_map<d>(dO, heads, N_q, Br<d>),
                  static_cast<const Row*>(Rows.data()), dQ_sum.data(), dK, dV, Tc, group, N_q, Tr, N_kv, p.scale,
                  p.causal);
    flash::launch(finish<T, d>, tiles, consumers * warpgroup, 0, static_cast<const float*>(dQ_sum.data()), dQ, Tr, N_q,
                  p.scale);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    return padded_rows(p) * (static_cast<int64_t>(sizeof(Row)) + p.head_dim * static_cast<int64_t>(sizeof(float)));
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

} // namespace step25
