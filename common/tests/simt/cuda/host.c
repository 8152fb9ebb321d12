// A host program in C that asks for CUDA's headers.
#include "host_kernel.h"
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
    int *numbers = malloc(128), *d;
    cudaError_t e = cudaMalloc((void**)&d, 128);
    if (e != cudaSuccess)
        return 1;
    run(d);
    cudaMemcpy(numbers, d, 128, cudaMemcpyDeviceToHost);
    cudaEvent_t a;
    cudaEventCreate(&a);
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    cudaStream_t s;
    cudaStreamCreate(&s);
    printf("%d %s\n", numbers[31], cudaGetErrorString(e));
}
