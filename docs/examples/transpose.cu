// Transposes a matrix, tile by tile. docs/simt.md counts what its lines cost.
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#ifndef PAD
#define PAD 0
#endif

constexpr int size = 128, side = 32, rows = 8;

__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[side][side + PAD];
    const int x = threadIdx.x;
    for (int y = threadIdx.y; y < side; y += rows) {
        tile[y][x] = in[(blockIdx.y * side + y) * size + blockIdx.x * side + x];
    }
    __syncthreads();
    for (int y = threadIdx.y; y < side; y += rows) {
        out[(blockIdx.x * side + y) * size + blockIdx.y * side + x] = tile[x][y];
    }
}

int main() {
    std::vector<float> in(size * size), out(size * size);
    for (int i = 0; i < size * size; ++i) {
        in[i] = i;
    }
    float *d_in, *d_out;
    cudaMalloc(&d_in, size * size * sizeof(float));
    cudaMalloc(&d_out, size * size * sizeof(float));
    cudaMemcpy(d_in, in.data(), size * size * sizeof(float), cudaMemcpyHostToDevice);
    transpose<<<dim3(size / side, size / side), dim3(side, rows)>>>(d_in, d_out);
    cudaMemcpy(out.data(), d_out, size * size * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(d_in);
    cudaFree(d_out);

    int wrong = 0;
    for (int i = 0; i < size * size; ++i) {
        wrong += out[i] != in[i % size * size + i / size];
    }
    std::printf("%d of %d elements are wrong\n", wrong, size * size);
    return wrong == 0 ? 0 : 1;
}
