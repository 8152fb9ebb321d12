// Adds up a vector by shuffles: each warp its own 32 numbers, in registers.
// docs/cuda_in_one_hour.md walks through it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/cuda/cuda.hpp"

constexpr int threads = 256; // per block
constexpr int warps = threads / 32;

/// The sum of x over the 32 lanes of a warp, in each of them.
__device__ float sum_of_warp(float x) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffff, x, distance);
    }
    return x;
}

/// sums[b] = the sum of the `threads` elements of x that belong to block b.
__global__ void warp_sum(const float* x, float* sums) {
    float* of_warp = flash::dynamic_shared<float>();
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const float sum = sum_of_warp(x[blockIdx.x * threads + threadIdx.x]);
    if (lane == 0) {
        of_warp[warp] = sum;
    }
    __syncthreads(); // warp 0 reads what the other warps have written
    if (warp == 0) {
        const float total = sum_of_warp(lane < warps ? of_warp[lane] : 0.0f);
        if (lane == 0) {
            sums[blockIdx.x] = total;
        }
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
    flash::launch(warp_sum, blocks, threads, warps * sizeof(float), x_gpu, sums_gpu);
    check(cudaMemcpy(sums.data(), sums_gpu, sums.size() * sizeof(float), cudaMemcpyDeviceToHost));
    check(cudaFree(x_gpu));
    check(cudaFree(sums_gpu));

    float sum = 0;
    for (const float s : sums) {
        sum += s;
    }
    std::printf("the sum is %.0f, and should be %d\n", sum, blocks * threads);
    return sum == blocks * threads ? 0 : 1;
}
