// Headers of which nothing is used, and those of complex numbers and of copies.
#include "cutlass/cutlass.h"
#include <cstdio>
#include <cuComplex.h>
#include <cub/cub.cuh>
#include <cuda/pipeline>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <curand_kernel.h>
#include <mpi.h>
#include <texture_fetch_functions.h>
#include <thrust/device_vector.h>
__global__ void k(cuFloatComplex* p, int* n) {
    __shared__ int s[8];
    __pipeline_memcpy_async(s, n, 4);
    __pipeline_memcpy_async(s + 2, n, 8, 3);
    __pipeline_memcpy_async(s + 4, n, 16, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    n[4] = s[0] + s[2] + s[3] + s[4] + s[7];
    *p = cuCmulf(make_cuFloatComplex(1, 2), cuConjf(make_cuComplex(3, 4)));
}
int main() {
    cuFloatComplex* p;
    int* n;
    cudaMallocManaged(&p, 8);
    cudaMallocManaged(&n, 20);
    n[0] = 1000, n[1] = 0x01020304;
    k<<<1, 1, 0, cudaStreamDefault>>>(p, n);
    cudaDeviceSynchronize();
    printf("%g %g %d\n", p->x, p->y, n[4]);
}
