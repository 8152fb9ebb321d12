// flash_attention_2: The loops are swapped. A block owns a tile of Q, and O stays in registers.
//
// The idea: a block keeps a tile of Q and lets all tiles of K and V pass by. Its rows of O, l and m
// belong to no other block, so they need no memory until they are final. Inside the block each warp
// owns some of these rows, so that warps share nothing but K and V. (Dao, "FlashAttention-2", 2023,
// algorithm 1 and section 3.3.)
//
//      one block per tile i of Q              grid: B * H * Tr blocks
//          load Q_i                           Tr = ceil(N_q / Br) tiles of Q
//          for each tile j of K, V            Tc = ceil(N_kv / Bc) tiles of K and V
//              load K_j, V_j;  m, l, O <- merge
//          O / l and LSE to memory, once
//
// Parent: flash_attention_1. New: O, l and m make no round trip; a row is divided by l at the end,
// once; there are Tr times as many blocks; a pair of tiles takes two barriers of the block, not
// three (though it has half as many keys); only tiles on an edge are masked.
// Look at: O_reg, and which barrier a warp waits at for whom.
// Gained: every SM has work. Counter: each element of O is written once, where it was Tc + 1 times;
// K and V are read Tr times instead.
#include "steps/13_flash_attention_2/flash_attention_2.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"

namespace flash_attention_2 {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr unsigned every_lane = 0xffffffff;

template <int d> struct Tile {
    static constexpr int Br = 64; // queries
    static constexpr int Bc = 32; // keys: one per lane
    static constexpr int warp_rows = Br / warps;
    // The lanes of a warp read one column of K, each from a row of its own. With an odd row length
    // these 32 numbers lie in 32 different banks.
    static constexpr int K_stride = d + 1;
};

/// What a block keeps in shared memory: at most 99 KiB, which every GPU from compute capability 8.0
/// on has.
template <int d> struct Shared {
    using T = Tile<d>;
    float Q[T::Br][d], K[T::Bc][T::K_stride], V[T::Bc][d];
    float P[T::Br][T::Bc];
};

__device__ float warp_max(float x) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(every_lane, x, distance));
    }
    return x;
}

__device__ float warp_sum(float x) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(every_lane, x, distance);
    }
    return x;
}

/// Copies `rows` rows of d floats into shared memory, and zeros in place of rows from `valid` on. A
/// thread keeps to one column; neighbouring threads read neighbouring floats.
template <int d>
__device__ void load_tile(float* smem, int stride, const float* from, int rows, int valid) {
    const int x = threadIdx.x % d;
    for (int r = threadIdx.x / d; r < rows; r += threads / d) {
        smem[r * stride + x] = r < valid ? from[r * d + x] : 0.0f;
    }
}

template <int d>
__global__ __launch_bounds__(threads) void flash_attention_2(const float* Q, const float* K,
                                                             const float* V, float* O, float* LSE,
                                                             int Tr, int group, int N_q, int N_kv,
                                                             float scale, bool causal) {
    using T = Tile<d>;
    constexpr int Br = T::Br;
    constexpr int Bc = T::Bc;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row0 = warp * T::warp_rows; // the warp's first row in the tile of Q
    Shared<d>& smem = *flash::dynamic_shared<Shared<d>>();
    float* Q_smem = smem.Q[row0]; // these two are the warp's own
    float* P_smem = smem.P[row0];
    float* K_smem = smem.K[0];
    float* V_smem = smem.V[0];

    const int64_t head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br;
    Q += (head * N_q + i0) * d;
    O += (head * N_q + i0) * d;
    K += head / group * N_kv * d;
    V += head / group * N_kv * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;

    float m_reg[T::warp_rows];
    float l_reg[T::warp_rows];
    float O_reg[T::warp_rows][d / 32]; // lane: columns lane, lane + 32, ...
    // Unrolled here and below: registers have no addresses, so an index into a register array must
    // be known to the compiler.
#pragma unroll
    for (int r = 0; r < T::warp_rows; ++r) {
        m_reg[r] = -INFINITY;
        l_reg[r] = 0;
        for (int n = 0; n < d / 32; ++n) {
            O_reg[r][n] = 0;
        }
    }

    load_tile<d>(smem.Q[0], d, Q, Br, rows);
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read K_smem and V_smem of the tile before
        load_tile<d>(K_smem, T::K_stride, K + int64_t{j0} * d, Bc, N_kv - j0);
        load_tile<d>(V_smem, d, V + int64_t{j0} * d, Bc, N_kv - j0);
        __syncthreads(); // K_smem and V_smem are complete, and for the first tile Q_smem

        // some row does not see the whole tile
        const bool edge = j0 + Bc > min(N_kv, first_row_keys);
#pragma unroll
        for (int r = 0; r < T::warp_rows; ++r) {
            float s = 0;
            for (int x = 0; x < d; ++x) {
                s += Q_smem[r * d + x] * K_smem[lane * T::K_stride + x];
            }
            s *= scale;
            if (edge && (j0 + lane >= N_kv || j0 + lane >= first_row_keys + row0 + r)) {
                s = -INFINITY;
            }

            const float m_new = fmaxf(m_reg[r], warp_max(s));
            // no visible key yet, and -inf - -inf is NaN
            const float shift = m_new == -INFINITY ? 0.0f : m_new;
            const float p = expf(s - shift);
            const float keep = expf(m_reg[r] - shift);
            m_reg[r] = m_new;
            l_reg[r] = keep * l_reg[r] + warp_sum(p);
            for (int n = 0; n < d / 32; ++n) {
                O_reg[r][n] *= keep;
            }
            P_smem[r * Bc + lane] = p;
        }
        __syncwarp(); // P_smem is complete: its rows belong to this warp alone

#pragma unroll
        for (int r = 0; r < T::warp_rows; ++r) {
            for (int c = 0; c < Bc; ++c) {
                for (int n = 0; n < d / 32; ++n) {
                    O_reg[r][n] += P_smem[r * Bc + c] * V_smem[c * d + n * 32 + lane];
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < T::warp_rows; ++r) {
        if (row0 + r >= rows) {
            break;
        }
        // a row that sees no key gets O = 0
        const float normalise = l_reg[r] == 0 ? 0.0f : 1 / l_reg[r];
        for (int n = 0; n < d / 32; ++n) {
            O[(row0 + r) * d + n * 32 + lane] = O_reg[r][n] * normalise;
        }
        if (lane == 0) {
            LSE[row0 + r] = m_reg[r] + logf(l_reg[r]);
        }
    }
}

template <int d>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
         float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Tile<d>::Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    flash::launch(flash_attention_2<d>, blocks, threads, sizeof(Shared<d>), Q, K, V, O, LSE, Tr,
                  group, N_q, N_kv, p.scale, p.causal);
}

} // namespace

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<d>(p, Q, K, V, O, LSE); });
}

} // namespace flash_attention_2
