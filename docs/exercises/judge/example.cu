// Attention for `./scripts/exercise judge`, as short as it can be and right: a block for each row
// of O, 128 keys at a time. Copy it, and make it fast.
#include <math.h>

#include "attention_judge.h"

const AttentionTakes attention_takes = {.types = "fp32", .head_dims = "32 64 128"};

constexpr int threads = 128; // keys of a tile; and elements of a row, of which there are no more

__global__ void attention_row(AttentionProblem p, const float* Q, const float* K, const float* V,
                              float* O, float* LSE) {
    __shared__ float S[threads];
    const int row = blockIdx.x, i = row % p.q_len, head = row / p.q_len; // of all batch x heads
    const int d = p.head_dim, x = threadIdx.x;
    const int kv_head = head / (p.heads / p.kv_heads);
    K += size_t(kv_head) * p.kv_len * d;
    V += size_t(kv_head) * p.kv_len * d;
    const int seen = p.causal ? max(0, min(p.kv_len, i + p.kv_len - p.q_len + 1)) : p.kv_len;

    float m = -INFINITY, l = 0, o = 0; // of the keys so far; o is element x of the row
    for (int begin = 0; begin < seen; begin += threads) {
        const int keys = min(threads, seen - begin);
        if (x < keys) {
            float sum = 0;
            for (int n = 0; n < d; ++n) {
                sum += Q[size_t(row) * d + n] * K[size_t(begin + x) * d + n];
            }
            S[x] = p.scale * sum;
        }
        __syncthreads(); // the scores of the tile are there
        const float before = m;
        for (int j = 0; j < keys; ++j) {
            m = S[j] <= m ? m : S[j]; // NaN stays
        }
        const float shrink = before == -INFINITY ? 0 : expf(before - m);
        l *= shrink;
        o *= shrink;
        for (int j = 0; j < keys; ++j) {
            const float weight = expf(S[j] - m);
            l += weight;
            o += x < d ? weight * V[size_t(begin + j) * d + x] : 0;
        }
        __syncthreads(); // nobody needs them any more
    }
    if (x < d) {
        O[size_t(row) * d + x] = l == 0 ? 0 : o / l;
    }
    if (x == 0) {
        LSE[row] = m + logf(l);
    }
}

void attention(const AttentionProblem* p, const void* Q, const void* K, const void* V, void* O,
               float* LSE, void* workspace, cudaStream_t stream) {
    const int rows = p->batch * p->heads * p->q_len;
    attention_row<<<rows, threads, 0, stream>>>(*p, (const float*)Q, (const float*)K,
                                                (const float*)V, (float*)O, LSE);
}
