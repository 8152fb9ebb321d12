// Attention and its gradients for `./scripts/exercise judge`, as short as they can be and right: a
// block for each row, 128 rows of the other side at a time. Copy it, and make it fast.
#include <math.h>

#include "attention_judge.h"

constexpr int threads = 128; // rows of a tile; and elements of a row, of which there are no more
                             // ("32 64 128" is right, too, and takes seven times as long)

const AttentionTakes attention_takes = {.types = "fp32", .head_dims = "32"};

using Problem = AttentionProblem;

/// A query is a row of Q, O and dO; a key is a row of K and V. `head` is one of batch x heads.
__device__ size_t query(const Problem& p, int head, int i) { return size_t(head) * p.q_len + i; }
__device__ size_t key(const Problem& p, int head, int j) {
    return size_t(head / (p.heads / p.kv_heads)) * p.kv_len + j;
}

/// How many keys query i sees: the first ones.
__device__ int seen_by(const Problem& p, int i) {
    return p.causal ? max(0, min(p.kv_len, i + p.kv_len - p.q_len + 1)) : p.kv_len;
}

__device__ float score(const Problem& p, const float* q, const float* k) {
    float sum = 0;
    for (int n = 0; n < p.head_dim; ++n) {
        sum += q[n] * k[n];
    }
    return p.scale * sum;
}

__global__ void forward(Problem p, const float* Q, const float* K, const float* V, float* O,
                        float* LSE) {
    __shared__ float S[threads];
    const int i = blockIdx.x % p.q_len, head = blockIdx.x / p.q_len, d = p.head_dim;
    const int x = threadIdx.x; // a key of the tile; and an element of the row
    const size_t row = query(p, head, i);
    const int seen = seen_by(p, i);

    float m = -INFINITY, l = 0, o = 0; // of the keys so far; o is element x
    for (int begin = 0; begin < seen; begin += threads) {
        const int keys = min(threads, seen - begin);
        if (x < keys) {
            S[x] = score(p, Q + row * d, K + key(p, head, begin + x) * d);
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
            o += x < d ? weight * V[key(p, head, begin + j) * d + x] : 0;
        }
        __syncthreads(); // nobody needs them any more
    }
    if (x < d) {
        O[row * d + x] = l == 0 ? 0 : o / l;
    }
    if (x == 0) {
        LSE[row] = m + logf(l);
    }
}

struct Inputs {
    const float *Q, *K, *V, *O, *LSE, *dO;
};

/// P and dS of one query and one key that it sees. S may be rounded to more than LSE, but P is at
/// most 1. dP - delta is dO (V - O).
__device__ float2 weight_and_gradient(const Problem& p, const Inputs& in, size_t row, size_t key) {
    const int d = p.head_dim;
    const float P = expf(-fabsf(score(p, in.Q + row * d, in.K + key * d) - in.LSE[row]));
    float sum = 0;
    for (int n = 0; n < d; ++n) {
        sum += in.dO[row * d + n] * (in.V[key * d + n] - in.O[row * d + n]);
    }
    return {P, P * sum};
}

__global__ void gradient_of_query(Problem p, Inputs in, float* dQ) {
    __shared__ float dS[threads];
    const int i = blockIdx.x % p.q_len, head = blockIdx.x / p.q_len, d = p.head_dim;
    const int x = threadIdx.x;
    const size_t row = query(p, head, i);
    const int seen = seen_by(p, i);

    float dq = 0;
    for (int begin = 0; begin < seen; begin += threads) {
        const int keys = min(threads, seen - begin);
        if (x < keys) {
            dS[x] = weight_and_gradient(p, in, row, key(p, head, begin + x)).y;
        }
        __syncthreads(); // the gradients of the tile are there
        for (int j = 0; j < keys; ++j) {
            dq += x < d ? dS[j] * in.K[key(p, head, begin + j) * d + x] : 0;
        }
        __syncthreads(); // nobody needs them any more
    }
    if (x < d) {
        dQ[row * d + x] = p.scale * dq;
    }
}

__global__ void gradients_of_key(Problem p, Inputs in, float* dK, float* dV) {
    __shared__ float P[threads], dS[threads];
    const int j = blockIdx.x % p.kv_len, kv_head = blockIdx.x / p.kv_len, d = p.head_dim;
    const int x = threadIdx.x, group = p.heads / p.kv_heads;
    const int first = p.causal ? max(0, j + p.q_len - p.kv_len) : 0; // query that sees the key

    float dk = 0, dv = 0;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int begin = first; begin < p.q_len; begin += threads) {
            const int queries = min(threads, p.q_len - begin);
            if (x < queries) {
                const size_t row = query(p, head, begin + x);
                const float2 both = weight_and_gradient(p, in, row, blockIdx.x);
                P[x] = both.x;
                dS[x] = both.y;
            }
            __syncthreads(); // the weights of the tile are there
            for (int i = 0; i < queries; ++i) {
                const size_t element = query(p, head, begin + i) * d + x;
                dk += x < d ? dS[i] * in.Q[element] : 0;
                dv += x < d ? P[i] * in.dO[element] : 0;
            }
            __syncthreads(); // nobody needs them any more
        }
    }
    if (x < d) {
        dK[size_t(blockIdx.x) * d + x] = p.scale * dk;
        dV[size_t(blockIdx.x) * d + x] = dv;
    }
}

static const float* floats(const void* tensor) { return static_cast<const float*>(tensor); }
static float* floats(void* tensor) { return static_cast<float*>(tensor); }

void attention(const Problem* p, const void* Q, const void* K, const void* V, void* O, float* LSE,
               void*, cudaStream_t stream) {
    const int queries = p->batch * p->heads * p->q_len;
    forward<<<queries, threads, 0, stream>>>(*p, floats(Q), floats(K), floats(V), floats(O), LSE);
}

void attention_backward(const Problem* p, const void* Q, const void* K, const void* V,
                        const void* O, const float* LSE, const void* dO, void* dQ, void* dK,
                        void* dV, void*, cudaStream_t stream) {
    const Inputs in = {floats(Q), floats(K), floats(V), floats(O), LSE, floats(dO)};
    const int queries = p->batch * p->heads * p->q_len, keys = p->batch * p->kv_heads * p->kv_len;
    gradient_of_query<<<queries, threads, 0, stream>>>(*p, in, floats(dQ));
    gradients_of_key<<<keys, threads, 0, stream>>>(*p, in, floats(dK), floats(dV));
}
