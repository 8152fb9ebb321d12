// flash_attention_1: One kernel in place of three. S and P exist one tile at a time, on the chip.
//
// The idea: a block keeps a tile of K and V in shared memory and lets all tiles of Q pass by. Each
// pass computes one tile of S and merges it into O, as one_pass_softmax does. (Dao et al.,
// "FlashAttention", 2022, algorithm 1.)
//
//      for each tile j of K, V                S_ij = Q_i K_j^T   one block per head
//          load K_j, V_j                      m, l, O <- merge   Tr = ceil(N_q / Br) tiles of Q
//          for each tile i of Q                                  Tc = ceil(N_kv / Bc) of K and V
//              load Q_i;  O_i, l_i, m_i from memory, and back
//
// Parent: cuda_naive. New: one kernel, and nothing of size N_q x N_kv goes to memory any more.
// Look at: what the inner loop reads and writes. It runs over Q, so O, l and m make a round trip to
// memory for each of the Tc tiles of K.
// Cost: those round trips; and a head is one block, so 64 heads use 64 of an H200's 132 SMs.
#include "steps/12_flash_attention_1/flash_attention_1.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"

namespace flash_attention_1 {
namespace {

constexpr int threads = 1024; // a head has only one block, so the block is as large as allowed
constexpr int warps = threads / 32;
constexpr unsigned every_lane = 0xffffffff;

template <int d> struct Tile {
    static constexpr int Br = d == 128 ? 32 : 64; // queries
    static constexpr int Bc = 64;                 // keys
    // The lanes of a warp read one column of K, each from a row of its own. With an odd row length
    // these 32 numbers lie in 32 different banks.
    static constexpr int K_stride = d + 1;
};

/// What a block keeps in shared memory: at most 99 KiB, which every GPU from compute capability 8.0
/// on has.
template <int d> struct Shared {
    using T = Tile<d>;
    float Q[T::Br][d], K[T::Bc][T::K_stride], V[T::Bc][d];
    float S[T::Br][T::Bc]; // S, then P in its place
    float keep[T::Br];     // what a row of O is multiplied by,
    float add[T::Br];      // and what P V is, before it is added
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
__global__ __launch_bounds__(threads) void flash_attention_1(const float* Q, const float* K,
                                                             const float* V, float* O, float* LSE,
                                                             float* l, float* m, int group, int N_q,
                                                             int N_kv, float scale, bool causal) {
    using T = Tile<d>;
    constexpr int Br = T::Br;
    constexpr int Bc = T::Bc;
    Shared<d>& smem = *flash::dynamic_shared<Shared<d>>();
    float* Q_smem = smem.Q[0];
    float* K_smem = smem.K[0];
    float* V_smem = smem.V[0];
    float* S_smem = smem.S[0];
    float* keep_smem = smem.keep;
    float* add_smem = smem.add;

    const int64_t head = blockIdx.x;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    Q += head * N_q * d;
    O += head * N_q * d;
    K += head / group * N_kv * d;
    V += head / group * N_kv * d;
    LSE += head * N_q;
    l += head * N_q;
    m += head * N_q;

    for (int64_t e = threadIdx.x; e < int64_t{N_q} * d; e += threads) {
        O[e] = 0;
    }
    for (int i = threadIdx.x; i < N_q; i += threads) {
        l[i] = 0;
        m[i] = -INFINITY;
    }

    for (int j0 = 0; j0 < N_kv; j0 += Bc) {
        // slower warps still read K_smem and V_smem; and O, l and m have their first values
        __syncthreads();
        load_tile<d>(K_smem, T::K_stride, K + int64_t{j0} * d, Bc, N_kv - j0);
        load_tile<d>(V_smem, d, V + int64_t{j0} * d, Bc, N_kv - j0);

        // Query i sees key j if j <= i + (N_kv - N_q): rows before the first that sees key j0 have
        // nothing to do.
        const int first = causal ? max(j0 - (N_kv - N_q), 0) / Br * Br : 0;
        for (int i0 = first; i0 < N_q; i0 += Br) {
            const int rows = min(Br, N_q - i0);
            load_tile<d>(Q_smem, d, Q + int64_t{i0} * d, Br, rows);
            // Q_smem, K_smem and V_smem are complete; nobody still reads S_smem or the factors
            __syncthreads();

            for (int e = threadIdx.x; e < Br * Bc; e += threads) {
                const int r = e / Bc;
                const int c = e % Bc;
                float s = 0;
                for (int x = 0; x < d; ++x) {
                    s += Q_smem[r * d + x] * K_smem[c * T::K_stride + x];
                }
                const bool visible = j0 + c < N_kv && (!causal || j0 + c <= i0 + r + (N_kv - N_q));
                S_smem[e] = visible ? scale * s : -INFINITY;
            }
            __syncthreads(); // S_smem is complete

            for (int r = warp; r < rows; r += warps) {
                float* S = S_smem + r * Bc;
                const float m_old = m[i0 + r];
                const float l_old = l[i0 + r];
                float tile_max = -INFINITY;
                for (int c = lane; c < Bc; c += 32) {
                    tile_max = fmaxf(tile_max, S[c]);
                }
                const float m_new = fmaxf(m_old, warp_max(tile_max));
                // no visible key yet, and -inf - -inf is NaN
                const float shift = m_new == -INFINITY ? 0.0f : m_new;
                float tile_sum = 0;
                for (int c = lane; c < Bc; c += 32) {
                    const float p = expf(S[c] - shift);
                    S[c] = p;
                    tile_sum += p;
                }
                const float l_kept = expf(m_old - shift) * l_old;
                const float l_new = l_kept + warp_sum(tile_sum);
                __syncwarp(); // m and l have been read by each lane before lane 0 writes them
                if (lane == 0) {
                    const float normalise = l_new == 0 ? 0.0f : 1 / l_new;
                    keep_smem[r] = l_kept * normalise; // O is kept divided by l, as in the paper
                    add_smem[r] = normalise;
                    m[i0 + r] = m_new;
                    l[i0 + r] = l_new;
                }
            }
            __syncthreads(); // P and the factors are complete

            for (int e = threadIdx.x; e < rows * d; e += threads) {
                const int r = e / d;
                const int x = e % d;
                float sum = 0;
                for (int c = 0; c < Bc; ++c) {
                    sum += S_smem[r * Bc + c] * V_smem[c * d + x];
                }
                float& o = O[int64_t{i0} * d + e];
                o = keep_smem[r] * o + add_smem[r] * sum;
            }
        }
    }

    // The barrier after P is behind the last store to m and l.
    for (int i = threadIdx.x; i < N_q; i += threads) {
        LSE[i] = m[i] + logf(l[i]);
    }
}

template <int d>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
         float* LSE, void* workspace) {
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    flash::Workspace parts(workspace);
    float* const l = parts.part<float>(p.lse_size(), "l");
    float* const m = parts.part<float>(p.lse_size(), "m");
    flash::launch(flash_attention_1<d>, heads, threads, sizeof(Shared<d>), Q, K, V, O, LSE, l, m,
                  group, N_q, N_kv, p.scale, p.causal);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    return 2 * flash::part_bytes<float>(p.lse_size());
}

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim,
                                   [&](auto d) { run<d>(p, Q, K, V, O, LSE, workspace); });
}

} // namespace flash_attention_1
