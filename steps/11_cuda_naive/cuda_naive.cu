// cuda_naive: safe_softmax on a GPU. Thousands of threads, and each computes one element.
//
// The idea: S = Q K^T, P = softmax(S) and O = P V are three kernels, launched one after the other.
// In the two products every element has a thread of its own, and neighbouring threads compute
// neighbouring elements of a row. So a warp writes S and O, and reads V, in full 32-byte sectors:
// these accesses are coalesced. Its reads of Q and K are not, because its lanes read one column.
// A row of P is normalised by a block, which merges maxima and sums as one_pass_softmax does.
// Look at: which index threadIdx.x runs along in each kernel.
// Cost: S and P, N_q x N_kv floats a head, travel to memory and back (flash_attention_1 stops
// that), and each multiply-add fetches both of its factors from L1.
#include "steps/11_cuda_naive/cuda_naive.hpp"

#include <algorithm>
#include <cmath>

#include "common/cuda/cuda.hpp"

namespace cuda_naive {
namespace {

// A warp is 32 threads in a row of threadIdx.x, then of threadIdx.y: here 8 keys x 4 queries. 8
// floats of a row of S are one sector, the least that memory moves, so 8 keys wide is wide enough,
// and the warp reads only 8 rows of K.
constexpr int score_keys = 8;
constexpr int score_rows = 32;
constexpr int softmax_threads = 256;
constexpr int output_threads = 256;
constexpr int warps = softmax_threads / 32;
constexpr unsigned every_lane = 0xffffffff;

/// S = scale Q K^T, and -inf where query i does not see key j. One thread per element; x runs along
/// the keys.
/// The grid's y and z end at 65535, but rows and heads do not. So each block takes every gridDim-th
/// tile of both.
__global__ void scores(const float* Q, const float* K, float* S, int heads, int group, int N_q,
                       int N_kv, int d, float scale, bool causal) {
    const int j = blockIdx.x * score_keys + threadIdx.x;
    if (j >= N_kv) {
        return; // allowed, because no barrier follows that the other threads would wait at
    }
    for (int head = blockIdx.z; head < heads; head += gridDim.z) {
        for (int i = blockIdx.y * score_rows + threadIdx.y; i < N_q; i += gridDim.y * score_rows) {
            const int64_t row = int64_t{head} * N_q + i;
            float s = -INFINITY;
            if (!causal || j <= i + (N_kv - N_q)) {
                const float* q = Q + row * d;
                const float* k = K + (int64_t{head / group} * N_kv + j) * d;
                s = 0;
                for (int x = 0; x < d; ++x) {
                    s += q[x] * k[x];
                }
                s *= scale;
            }
            S[row * N_kv + j] = s;
        }
    }
}

/// Maximum m of some scores, and the sum l of exp(S - m) over them.
struct Stats {
    float m, l;
};

/// The Stats of the scores of a and of b together: one_pass_softmax's merge, without O. An empty
/// side is {-inf, 0}.
__device__ Stats merge(Stats a, Stats b) {
    const float m = fmaxf(a.m, b.m);
    const float shift = m == -INFINITY ? 0.0f : m; // no visible key yet, and -inf - -inf is NaN
    return {m, a.l * expf(a.m - shift) + b.l * expf(b.m - shift)};
}

/// The merge over the 32 lanes of a warp, in each lane: with lanes 16 away, then 8, 4, 2 and 1.
__device__ Stats merge_warp(Stats s) {
    for (int distance = 16; distance > 0; distance /= 2) {
        s = merge(s, {__shfl_xor_sync(every_lane, s.m, distance),
                      __shfl_xor_sync(every_lane, s.l, distance)});
    }
    return s;
}

/// P = softmax of each row of S, and LSE. One block per row; its threads walk along the row side by
/// side.
/// P may be S: a thread reads and writes the same elements.
__global__ void softmax(const float* S, float* P, float* LSE, int N_kv) {
    const int64_t row = blockIdx.x;
    const int warp = threadIdx.x / 32;
    S += row * N_kv;
    P += row * N_kv;

    Stats stats{-INFINITY, 0};
    for (int j = threadIdx.x; j < N_kv; j += softmax_threads) {
        stats = merge(stats, {S[j], 1});
    }
    stats = merge_warp(stats);

    __shared__ Stats of_warp[warps];
    if (threadIdx.x % 32 == 0) {
        of_warp[warp] = stats;
    }
    __syncthreads(); // every warp reads what the other warps have just written
    stats = of_warp[0];
    for (int w = 1; w < warps; ++w) {
        stats = merge(stats, of_warp[w]);
    }

    const float shift = stats.m == -INFINITY ? 0.0f : stats.m;
    const float normalise = stats.l == 0 ? 0.0f : 1 / stats.l; // a row that sees no key gets P = 0
    for (int j = threadIdx.x; j < N_kv; j += softmax_threads) {
        P[j] = expf(S[j] - shift) * normalise;
    }
    if (threadIdx.x == 0) {
        LSE[row] = stats.m + logf(stats.l);
    }
}

/// O = P V. One thread per element; x runs along the head dim, which a block covers. Keys that a
/// row does not see have P = 0 and are left out.
__global__ void outputs(const float* P, const float* V, float* O, int heads, int group, int N_q,
                        int N_kv, int d, bool causal) {
    const int x = threadIdx.x;
    for (int head = blockIdx.z; head < heads; head += gridDim.z) {
        for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < N_q; i += gridDim.y * blockDim.y) {
            const int64_t row = int64_t{head} * N_q + i;
            const float* p = P + row * N_kv;
            const float* v = V + int64_t{head / group} * N_kv * d + x;
            const int visible = causal ? i + (N_kv - N_q) + 1 : N_kv;
            float o = 0;
            for (int j = 0; j < visible; ++j) {
                o += p[j] * v[int64_t{j} * d];
            }
            O[row * d + x] = o;
        }
    }
}

unsigned grid_yz(int64_t tiles) { return static_cast<unsigned>(std::min<int64_t>(tiles, 65535)); }

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    return flash::part_bytes<float>(p.lse_size() * p.kv_len);
}

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE, void* workspace) {
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int d = flash::as_int(p.head_dim, "head-dim");
    const int rows = flash::as_int(p.lse_size(), "batch x heads x q-len"); // of S, all heads
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    float* const S = flash::Workspace(workspace).part<float>(p.lse_size() * p.kv_len, "S");
    float* const P = S; // in place: half the memory, the same traffic

    const dim3 score_block(score_keys, score_rows);
    const dim3 score_grid(flash::ceil_div(N_kv, score_keys),
                          grid_yz(flash::ceil_div(N_q, score_rows)), grid_yz(heads));
    flash::launch(scores, score_grid, score_block, 0, Q, K, S, heads, group, N_q, N_kv, d, p.scale,
                  p.causal);

    flash::launch(softmax, rows, softmax_threads, 0, S, P, LSE, N_kv);

    const dim3 output_block(d, output_threads / d);
    const dim3 output_grid(1, grid_yz(flash::ceil_div(N_q, output_block.y)), grid_yz(heads));
    flash::launch(outputs, output_grid, output_block, 0, P, V, O, heads, group, N_q, N_kv, d,
                  p.causal);
}

} // namespace cuda_naive
