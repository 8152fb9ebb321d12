// A program that knows nothing of the harness: a CUDA rung's kernel is a function that anybody can
// link and call.
// It is linked with the kernels of all CUDA rungs and what they stand on, and with nothing else.
#include <cmath>
#include <cstdio>

#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"
#include "steps/11_cuda_naive/cuda_naive.hpp"

namespace {

constexpr int N = 40;
constexpr int d = 32;

__global__ void fill(float* values, float value) {
    values[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

/// Writes 1 into `wrong` where O is not 2, or LSE not log N.
__global__ void compare(const float* O, const float* LSE, float* wrong) {
    const int i = blockIdx.x;
    if (!(fabsf(O[i * d + threadIdx.x] - 2) < 1e-5f) || !(fabsf(LSE[i] - logf(N)) < 1e-5f)) {
        *wrong = 1; // several threads may, and write the same
    }
}

float first(const flash::DeviceBuffer<float>& buffer) {
#ifdef __NVCC__
    float value = NAN;
    cudaMemcpy(&value, buffer.data(), sizeof value, cudaMemcpyDeviceToHost);
    return value;
#else
    return *buffer.data();
#endif
}

} // namespace

int main() {
    try {
        const flash::DeviceBuffer<float> Q(N * d, "Q"), K(N * d, "K"), V(N * d, "V"), O(N * d, "O"),
            LSE(N, "LSE"), wrong(1, "wrong");
        flash::launch(fill, N, d, 0, Q.data(), 1.0f);
        flash::launch(fill, N, d, 0, K.data(), 0.0f); // every score is 0, so O is the mean of V
        flash::launch(fill, N, d, 0, V.data(), 2.0f);
        flash::launch(fill, 1, 1, 0, wrong.data(), 0.0f);
        const flash::Problem p{.q_len = N, .kv_len = N, .head_dim = d};
        const flash::DeviceBuffer<char> workspace(cuda_naive::workspace_bytes(p), "the workspace");
        cuda_naive::attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data(),
                              workspace.data());
        flash::launch(compare, N, d, 0, O.data(), LSE.data(), wrong.data());
        if (first(wrong) != 0) {
            std::puts("O or LSE is wrong");
            return 1;
        }
    } catch (const flash::Error& error) {
        std::puts(error.what());
        return 4; // no GPU
    }
    std::puts("a foreign program ran cuda_naive");
    return 0;
}
