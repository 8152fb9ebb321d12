// A dot product as textbooks print it, with one barrier forgotten. docs/simt.md runs it.
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

__device__ float sum_of_block(float* part) {
    const int t = threadIdx.x;
    for (int active = blockDim.x / 2; active > 0; active /= 2) {
        if (t < active) {
            part[t] += part[t + active];
        }
        __syncthreads();
    }
    return part[0];
}

__global__ void dot(const float* a, const float* b, float* sums, int n) {
    extern __shared__ float products[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    products[threadIdx.x] = i < n ? a[i] * b[i] : 0.0f;
#ifdef FIXED
    __syncthreads(); // all products are there before any is added
#endif
    const float sum = sum_of_block(products);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

int main() {
    const int n = 2000, threads = 256, blocks = (n + threads - 1) / threads;
    const std::vector<float> a(n, 2.0f), b(n, 0.5f);
    std::vector<float> sums(blocks);

    float *d_a, *d_b, *d_sums;
    cudaMalloc(&d_a, n * sizeof(float));
    cudaMalloc(&d_b, n * sizeof(float));
    cudaMalloc(&d_sums, blocks * sizeof(float));
    cudaMemcpy(d_a, a.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(d_b, b.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    dot<<<blocks, threads, threads * sizeof(float)>>>(d_a, d_b, d_sums, n);
    cudaMemcpy(sums.data(), d_sums, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(d_a);
    cudaFree(d_b);
    cudaFree(d_sums);

    float sum = 0;
    for (const float s : sums) {
        sum += s;
    }
    std::printf("the dot product is %.0f, and should be %d\n", sum, n);
    return sum == n ? 0 : 1;
}
