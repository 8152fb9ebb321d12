// __CUDA_ARCH__ is defined where a function runs on the device, and there alone.
#include <cstdio>
#define HD __host__ __device__
#ifdef __CUDA_ARCH__
#define ON_DEVICE 1
#define NAME(x) dev_##x
#else
#define ON_DEVICE 0
#define NAME(x) host_##x
#endif
#define WHERE (ON_DEVICE + 10)
__host__ __device__ int side() {
#ifdef __CUDA_ARCH__
    return 1;
#else
    return 0;
#endif
}
template <class T> struct S {
    T v;
    HD S() : v(0) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
        v = __CUDA_ARCH__;
#elif !defined(__CUDA_ARCH__)
        v = 5;
#endif
    }
    HD int where() const { return WHERE; }
};
HD constexpr int folded() {
#ifndef __CUDA_ARCH__
    return 3;
#else
    return 4;
#endif
}
__device__ int dev_f() { return 21; }
int host_f() { return 22; }
HD int named() { return NAME(f)(); }
int only_host();
#if !defined(__CUDA_ARCH__)
int only_host() { return 9; }
#endif
#if __CUDA_ARCH__ < 600
__device__ double atomicAdd(double* a, double b) { return 0; }
#endif
__global__ void k(int* p) {
    p[0] = side();
    p[1] = S<int>().v;
    p[2] = S<int>().where();
    p[3] = folded();
    p[4] = named();
    auto f = [] __host__ __device__ {
#ifdef __CUDA_ARCH__
        return 1;
#else
        return 2;
#endif
    };
    p[5] = f();
#ifdef __CUDA_ARCH__
    p[6] = __CUDA_ARCH__;
#else
    p[6] = 0;
#endif
}
int main() {
    int *d, h[7];
    cudaMalloc(&d, sizeof h);
    k<<<1, 1>>>(d);
    cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
    for (int i : h)
        printf("%d ", i);
    auto f = [] __host__ __device__ {
#ifdef __CUDA_ARCH__
        return 1;
#else
        return 2;
#endif
    };
#ifdef __CUDA_ARCH__
    printf("main is on the device ");
#else
    printf("| ");
#endif
    printf("%d %d %d %d %d %d %d\n", side(), S<int>().v, S<int>().where(), folded(), named(), f(),
           only_host());
}
