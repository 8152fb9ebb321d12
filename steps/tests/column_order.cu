#include "steps/tests/column_order.hpp"

#include "common/cuda/cuda.hpp"

namespace column_order {
namespace {

__global__ void scores(const float* Q, const float* K, float* S, int N_q, int N_kv, int d,
                       float scale) {
    // neighbouring threads: neighbouring rows of S
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < N_q && j < N_kv) {
        float s = 0;
        for (int x = 0; x < d; ++x) {
            s += Q[int64_t{i} * d + x] * K[int64_t{j} * d + x];
        }
        S[int64_t{i} * N_kv + j] = scale * s;
    }
}

__global__ void outputs(const float* P, const float* V, float* O, int N_q, int N_kv, int d) {
    // neighbouring threads: neighbouring rows of O
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int x = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < N_q) {
        float o = 0;
        for (int j = 0; j < N_kv; ++j) {
            o += P[int64_t{i} * N_kv + j] * V[int64_t{j} * d + x];
        }
        O[int64_t{i} * d + x] = o;
    }
}

} // namespace

void products(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
              float*, void* workspace) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int d = flash::as_int(p.head_dim, "head-dim");
    float* const S = flash::Workspace(workspace).part<float>(p.q_len * p.kv_len, "S");
    const dim3 block(32, 8);
    flash::launch(scores, dim3(flash::ceil_div(N_q, 32), flash::ceil_div(N_kv, 8)), block, 0, Q, K,
                  S, N_q, N_kv, d, p.scale);
    flash::launch(outputs, dim3(flash::ceil_div(N_q, 32), d / 8), block, 0, S, V, O, N_q, N_kv, d);
}

} // namespace column_order
