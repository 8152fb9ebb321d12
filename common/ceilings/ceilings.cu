// Measures what the units of a GPU reach when nothing else holds them back, and prints it as JSON.
// A rung's speed is compared with the ceiling of the unit that does its work. lab bench compiles
// and runs this.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int threads = 256;
constexpr int rounds = 2048;    // of a kernel's inner loop
constexpr int repetitions = 15; // the median of so many launches counts

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "ceilings: %s: %s\n", what, cudaGetErrorString(error));
        std::exit(1);
    }
}

/// Median seconds of `work`, after three runs that let clocks rise.
template <class Work> double seconds_of(const Work& work) {
    cudaEvent_t start, end;
    check(cudaEventCreate(&start), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> milliseconds;
    for (int i = 0; i < 3 + repetitions; ++i) {
        check(cudaEventRecord(start), "cudaEventRecord");
        work();
        check(cudaGetLastError(), "launch");
        check(cudaEventRecord(end), "cudaEventRecord");
        check(cudaEventSynchronize(end), "kernel");
        float elapsed = 0;
        check(cudaEventElapsedTime(&elapsed, start, end), "cudaEventElapsedTime");
        if (i >= 3) {
            milliseconds.push_back(elapsed);
        }
    }
    std::nth_element(milliseconds.begin(), milliseconds.begin() + repetitions / 2,
                     milliseconds.end());
    return milliseconds[repetitions / 2] / 1e3;
}

/// 24 bits that differ from thread to thread and from salt to salt, without a pattern.
__device__ unsigned some_bits(int salt) {
    unsigned hash = (blockIdx.x * threads + threadIdx.x + 977u * salt) * 2654435761u;
    hash ^= hash >> 16;
    hash *= 0x85ebca6bu;
    hash ^= hash >> 13;
    return hash >> 8;
}

/// A number in [0.5, 1): repeated multiply-adds and exponentials of such numbers stay finite.
__device__ float some_number(int salt) {
    return 0.5f + static_cast<float>(some_bits(salt)) / (1 << 25);
}

/// A normally distributed number, as a real tensor has them. The power that a product takes depends
/// on how many bits change from one operand to the next, and a GPU at its power limit lowers its
/// clock: numbers of one sign and one exponent, and zeros above all, can run faster.
__device__ float some_normal_number(int salt) {
    // neither 0 nor 1, which would give infinity: with 23 bits the half is not rounded away
    const float between_0_and_1 = (static_cast<float>(some_bits(salt) >> 1) + 0.5f) / (1 << 23);
    return normcdfinvf(between_0_and_1);
}

/// Two such numbers as bf16, cut off rather than rounded.
__device__ uint32_t two_bf16(int salt) {
    const uint32_t low = __float_as_uint(some_normal_number(2 * salt)) >> 16;
    const uint32_t high = __float_as_uint(some_normal_number(2 * salt + 1)) & 0xffff0000u;
    return high | low;
}

/// Results must reach memory in some case that the compiler cannot rule out, or it would leave out
/// the work.
template <int count> __device__ void keep(const float (&values)[count], float* out) {
    float sum = 0;
    for (float value : values) {
        sum += value;
    }
    if (sum == 123.456f) {
        *out = sum;
    }
}

/// `chains` independent multiply-adds per thread hide the latency of each.
__global__ void ffma(float* out) {
    constexpr int chains = 16;
    float x[chains];
    for (int i = 0; i < chains; ++i) {
        x[i] = some_number(i);
    }
    const float a = some_number(chains), b = some_number(chains + 1);
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < chains; ++i) {
            x[i] = fmaf(x[i], a, b);
        }
    }
    keep(x, out);
}
constexpr double ffma_flops = 16 * 2.0 * rounds * threads; // a block

__global__ void ex2(float* out) {
    constexpr int chains = 8;
    float x[chains];
    for (int i = 0; i < chains; ++i) {
        x[i] = some_number(i);
    }
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < chains; ++i) {
            asm volatile("{ .reg .f32 t; neg.f32 t, %0; ex2.approx.ftz.f32 %0, t; }" : "+f"(x[i]));
        }
    }
    keep(x, out);
}
constexpr double ex2_count = 8.0 * rounds * threads;

/// mma.sync.m16n8k16, bf16 with fp32 sums: the tensor cores as every GPU since sm_80 has them.
__global__ void mma_sync(float* out) {
#if __CUDA_ARCH__ >= 800
    constexpr int chains = 8;
    float c[4 * chains] = {};
    const uint32_t a[4] = {two_bf16(0), two_bf16(1), two_bf16(2), two_bf16(3)};
    const uint32_t b[2] = {two_bf16(4), two_bf16(5)};
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < chains; ++i) {
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                         "{%4, %5, %6, %7}, "
                         "{%8, %9}, {%0, %1, %2, %3};"
                         : "+f"(c[4 * i]), "+f"(c[4 * i + 1]), "+f"(c[4 * i + 2]),
                           "+f"(c[4 * i + 3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        }
    }
    keep(c, out);
#endif
}
constexpr double mma_sync_flops = 8 * 2.0 * 16 * 8 * 16 * rounds * (threads / 32);

/// wgmma.m64n128k16, bf16, both operands in shared memory. Where they lie there does not change the
/// speed, so the descriptors name one tile again and again. Hopper (sm_90a) alone has it.
#define EIGHT(n)                                                                                   \
    "+f"(c[n]), "+f"(c[n + 1]), "+f"(c[n + 2]), "+f"(c[n + 3]), "+f"(c[n + 4]), "+f"(c[n + 5]),    \
        "+f"(c[n + 6]), "+f"(c[n + 7])
__global__ void wgmma(float* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    // A: 64 rows, B: 128, of 128 bytes each; the rest is not read
    __shared__ alignas(1024) uint32_t tile[8192];
    for (int i = threadIdx.x; i < 8192; i += threads) {
        tile[i] = two_bf16(i);
    }
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    // 128-byte swizzle
    constexpr uint64_t layout = uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 16;
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    const uint64_t A = layout | (address >> 4), B = layout | ((address + 8192) >> 4);
    float c[64] = {};
    for (int round = 0; round < rounds / 2; ++round) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; ++k) { // 16 columns, 32 bytes, at a time
            asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, "
                         "%4, %5, %6, %7, %8, %9, %10, "
                         "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                         "%25, %26, %27, %28, %29, %30, "
                         "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
                         "%45, %46, %47, %48, %49, %50, "
                         "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, "
                         "%65, 1, 1, 1, 0, 0;"
                         : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40),
                           EIGHT(48), EIGHT(56)
                         : "l"(A + 2 * k), "l"(B + 2 * k));
        }
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::
                         : "memory");
    }
    keep(c, out);
#endif
}
#undef EIGHT
constexpr double wgmma_flops = 4 * 2.0 * 64 * 128 * 16 * (rounds / 2) * (threads / 128);

/// What all blocks do per second.
void print_unit(const char* name, void (*kernel)(float*), double of_block, int blocks, float* out) {
    const double seconds = seconds_of([&] { kernel<<<blocks, threads>>>(out); });
    std::printf("  \"%s\": %.6g,\n", name, of_block * blocks / seconds);
}

/// Bytes read and written per second by a copy within the GPU's memory.
void print_copy() {
    size_t free_bytes = 0, all_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
    const size_t bytes = std::min(size_t{1} << 30, free_bytes / 4); // far beyond the caches
    void *source = nullptr, *target = nullptr;
    check(cudaMalloc(&source, bytes), "cudaMalloc");
    check(cudaMalloc(&target, bytes), "cudaMalloc");
    check(cudaMemset(source, 0x5a, bytes), "cudaMemset");
    const double seconds = seconds_of([&] {
        check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    });
    std::printf("  \"copy_bytes_per_s\": %.6g\n", 2.0 * bytes / seconds);
    check(cudaFree(source), "cudaFree");
    check(cudaFree(target), "cudaFree");
}

} // namespace

int main() {
    cudaDeviceProp gpu{};
    check(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
    float* out = nullptr;
    check(cudaMalloc(&out, sizeof *out), "cudaMalloc");
    const int blocks = gpu.multiProcessorCount * 8 * 8; // eight full waves
    std::printf("{\n");
    print_unit("ffma_flops", ffma, ffma_flops, blocks, out);
    print_unit("ex2_per_s", ex2, ex2_count, blocks, out);
    print_unit("mma_sync_flops", mma_sync, mma_sync_flops, blocks, out);
    if (gpu.major == 9) {
        print_unit("wgmma_flops", wgmma, wgmma_flops, blocks, out);
    }
    print_copy();
    std::printf("}\n");
    check(cudaFree(out), "cudaFree");
    return 0;
}
