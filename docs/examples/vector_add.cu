// Adds two vectors, one element per thread. docs/cuda_in_one_hour.md walks through it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

/// c = a + b, n elements each. Thread i of the whole grid computes element i.
__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { // the last block may have threads to spare
        c[i] = a[i] + b[i];
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
    const int n = 1000;
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), c(n); // in the memory of the computer: the host
    for (int i = 0; i < n; ++i) {
        a[i] = i;
        b[i] = 0.5f;
    }

    float *a_gpu, *b_gpu, *c_gpu; // in the memory of the GPU: the device
    check(cudaMalloc(&a_gpu, bytes));
    check(cudaMalloc(&b_gpu, bytes));
    check(cudaMalloc(&c_gpu, bytes));
    check(cudaMemcpy(a_gpu, a.data(), bytes, cudaMemcpyHostToDevice));
    check(cudaMemcpy(b_gpu, b.data(), bytes, cudaMemcpyHostToDevice));

    const int threads = 256;                        // per block
    const int blocks = (n + threads - 1) / threads; // enough for all elements: 4
    add<<<blocks, threads>>>(a_gpu, b_gpu, c_gpu, n);

    // waits until the kernel has ended
    check(cudaMemcpy(c.data(), c_gpu, bytes, cudaMemcpyDeviceToHost));
    check(cudaFree(a_gpu));
    check(cudaFree(b_gpu));
    check(cudaFree(c_gpu));

    int wrong = 0;
    for (int i = 0; i < n; ++i) {
        wrong += c[i] != i + 0.5f;
    }
    std::printf("%d blocks of %d threads, c[999] = %.1f, %d of %d elements are wrong\n", blocks,
                threads, c[999], wrong, n);
    return wrong == 0 ? 0 : 1;
}
