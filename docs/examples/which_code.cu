// Says which of the codes in this program the GPU runs. See docs/building_appendix.md.
#include <cstdio>

__global__ void which_code(int* architecture) {
// Defined while nvcc compiles for a GPU: 800 for compute_80, 900 for compute_90.
#ifdef __CUDA_ARCH__
    *architecture = __CUDA_ARCH__;
#endif
}

/// Prints the error, if there is one, and returns whether there was.
static bool failed(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    }
    return error != cudaSuccess;
}

int main() {
    cudaDeviceProp gpu;
    int* architecture;
    if (failed(cudaGetDeviceProperties(&gpu, 0), "looking for a GPU") ||
        failed(cudaMallocManaged(&architecture, sizeof(int)), "allocating")) {
        return 2;
    }
    which_code<<<1, 1>>>(architecture);
    if (failed(cudaGetLastError(), "launching")) {
        return 2;
    }
    if (failed(cudaDeviceSynchronize(), "running")) {
        return 2;
    }
    std::printf("%s, compute capability %d.%d, runs the code compiled for compute_%d\n", gpu.name,
                gpu.major, gpu.minor, *architecture / 10);
    return 0;
}
