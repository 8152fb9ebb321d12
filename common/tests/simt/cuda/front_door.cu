// Names in prototypes, macros around kernels, inline kernels, launches among arguments of macros.
#include <cstdio>
#include <vector>
void report(dim3 gridDim, dim3 blockDim);
typedef void (*launcher)(dim3 gridDim, dim3 blockDim);
using other = void (*)(dim3 threadIdx);
struct Shape {
    void set(dim3 blockDim);
    int n(dim3 gridDim = dim3(1)) const { return gridDim.x; }
    void (*f)(dim3 blockIdx);
};
extern "C" int c_function(int blockDim, int gridDim);
template <int blockDim> struct Fixed { static constexpr int size = blockDim; };
template <class F> void each(F f, int (*)(int blockDim) = nullptr);
#define RESTRICT __restrict__
#define KERNEL __global__ void
#define GLOBAL __global__
#define EXPORT
#define INLINE inline
#define BOUNDED(n) __global__ void __launch_bounds__(n)
#define LIMITS(n) __launch_bounds__(n)
#define ARGS const T *RESTRICT x, T *y
#define IKERNEL inline __global__ void
#define FKERNEL __forceinline__ __global__
template <class T> KERNEL add1(const T* RESTRICT x, T* RESTRICT y, T c) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x] + c;
}
template <class T> GLOBAL void add2(const T* RESTRICT x, T* RESTRICT y, T c = T(1)) {
    y[threadIdx.x] += x[threadIdx.x] + c;
}
template <class T> EXPORT GLOBAL INLINE void add3(ARGS) { y[threadIdx.x] += x[threadIdx.x]; }
template <class T> BOUNDED(128) add4(ARGS, T c) { y[threadIdx.x] += x[threadIdx.x] + c; }
template <class T> INLINE GLOBAL void LIMITS(64) add5(ARGS) { y[threadIdx.x] += x[threadIdx.x]; }
template <class T> IKERNEL add6(ARGS) { y[threadIdx.x] += x[threadIdx.x]; }
FKERNEL void add7(float* y) { y[threadIdx.x] += blockDim.x; }
static inline __global__ void add8(float* y) {
    __shared__ float s[32];
    s[threadIdx.x] = 1;
    y[threadIdx.x] += s[threadIdx.x];
}
__global__ inline __attribute__((unused)) void add9(float* y) { y[threadIdx.x] += gridDim.x; }
#define DISPATCH(T, ...)                                                                           \
    [&] {                                                                                          \
        using scalar = T;                                                                          \
        __VA_ARGS__();                                                                             \
    }()
#define DISPATCH_NAMED(T, name, ...)                                                               \
    [&] {                                                                                          \
        const char* what = name;                                                                   \
        using scalar = T;                                                                          \
        return __VA_ARGS__();                                                                      \
    }()
#define RUN(...)                                                                                   \
    do {                                                                                           \
        __VA_ARGS__;                                                                               \
    } while (0)
#define TIMED(label, ...)                                                                          \
    { __VA_ARGS__ }
#define GRID 1, 32
int main() {
    typedef dim3 blockDim;
    blockDim one(1);
    float *x, *y, h[32];
    cudaMalloc(&x, 128);
    cudaMalloc(&y, 128);
    cudaMemset(x, 0, 128);
    DISPATCH(float, [&] { add1<scalar><<<1, 32>>>(x, y, scalar(1)); });
    DISPATCH_NAMED(float, "name", ([&] { add2<<<GRID>>>(x, y); }));
    DISPATCH(float, [&] {
        add3<scalar><<<1, 32>>>(x, y);
        add4<scalar><<<1, 32>>>(x, y, scalar(1));
    });
    RUN(add5<<<1, 32>>>(x, y); add6<float><<<1, 32>>>(x, y));
    TIMED(
        "x", add7<<<1, 32>>>(y); { add8<<<1, 32>>>(y); } add9<<<one, 32>>>(y);)
    RUN(int n = 32; for (int i = 0; i < 2; ++i) add1<float><<<1, n>>>(x, y, 5.f));
    cudaMemcpy(h, y, 128, cudaMemcpyDeviceToHost);
    printf("%g\n", h[31]);
}
