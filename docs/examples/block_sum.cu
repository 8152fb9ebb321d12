// Adds up a vector: each block the numbers of its part, in shared memory. docs/cuda_in_one_hour.md
// walks through it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/cuda/cuda.hpp"

// per block; a power of two, because the number of active threads is halved
constexpr int threads = 256;

/// sums[b] = the sum of the `threads` elements of x that belong to block b.
__global__ void block_sum(const float* x, float* sums) {
    __shared__ float part[threads];
    const int t = threadIdx.x;
    part[t] = x[blockIdx.x * threads + t];
    __syncthreads(); // the first round reads what other threads have just written
    for (int active = threads / 2; active > 0; active /= 2) {
        if (t < active) {
            part[t] += part[t + active];
        }
        __syncthreads(); // the next round reads what this one has written
    }
    if (t == 0) {
        sums[blockIdx.x] = part[0];
    }
}

/// Ends the program if a CUDA call has failed.
static void check(cudaError_t status) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
        std::exit(2);
    }
}

int main() {
    const int blocks = 16;
    std::vector<float> x(blocks * threads, 1.0f), sums(blocks); // ones: the sum is their number

    float *x_gpu, *sums_gpu;
    check(cudaMalloc(&x_gpu, x.size() * sizeof(float)));
    check(cudaMalloc(&sums_gpu, sums.size() * sizeof(float)));
    check(cudaMemcpy(x_gpu, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
    flash::launch(block_sum, blocks, threads, 0, x_gpu, sums_gpu);
    check(cudaMemcpy(sums.data(), sums_gpu, sums.size() * sizeof(float), cudaMemcpyDeviceToHost));
    check(cudaFree(x_gpu));
    check(cudaFree(sums_gpu));

    float sum = 0;
    for (const float s : sums) {
        sum += s; // what is left is little enough for the host
    }
    std::printf("the sum is %.0f, and should be %d\n", sum, blocks * threads);
    return sum == blocks * threads ? 0 : 1;
}
