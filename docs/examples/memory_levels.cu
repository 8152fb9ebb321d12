// Measures each level of a GPU's memory: how long one load takes, and how many bytes per second all
// loads together get. See docs/memory.md. It prints one name and one number per line.
//
// Latency: one thread follows a chain of indices, so that each load must wait for the one before.
// The chain visits lines of 128 bytes in a shuffled order. How long the chain is decides which
// level answers.
// Bandwidth: all SMs read 16 bytes per lane, again and again, from a buffer that fits into the
// level but not above it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr int line = 128;           // bytes of a line of L1 or L2
constexpr int hops = 4096;          // of a chain that are timed
constexpr int threads = 1024;       // of a block that reads as fast as it can
constexpr int shared_floats = 8192; // 32 KiB
constexpr int parts = 1024;         // of 16 KiB each: 16 MiB, which L2 holds and L1 does not
constexpr int repetitions = 11;     // the median counts

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "memory_levels: %s: %s\n", what, cudaGetErrorString(error));
        std::exit(2);
    }
}

template <class T> T* allocate(size_t count) {
    T* buffer;
    check(cudaMalloc(&buffer, count * sizeof(T)), "cudaMalloc");
    check(cudaMemset(buffer, 0, count * sizeof(T)), "cudaMemset");
    return buffer;
}

/// Clocks per load of a chain in global memory; the first `warm` loads bring it into the caches and
/// are not timed.
__global__ void chase(const int* next, int warm, float* clocks, int* end) {
    int at = 0;
    for (int i = 0; i < warm; ++i) {
        at = next[at];
    }
    const long long begin = clock64();
    for (int i = 0; i < hops; ++i) {
        at = next[at];
    }
    *clocks = static_cast<float>(clock64() - begin) / hops;
    *end = at; // or the compiler would leave the loads out
}

__global__ void chase_shared(int apart, float* clocks, int* end) {
    __shared__ int next[shared_floats];
    for (int i = threadIdx.x; i < shared_floats; i += blockDim.x) {
        next[i] = (i + apart) % shared_floats;
    }
    __syncthreads();
    int at = 0;
    const long long begin = clock64();
    for (int i = 0; i < hops; ++i) {
        at = next[at];
    }
    *clocks = static_cast<float>(clock64() - begin) / hops;
    *end = at;
}

/// Each warp reads 512 bytes per round, from a buffer that is as small as the one of read_shared.
__global__ void read_L1(const float4* from, int rounds, float* out) {
    float4 sum{};
#pragma unroll 8
    for (int round = 0; round < rounds; ++round) {
        const float4 x = __ldca(&from[(threadIdx.x + 32 * round) % (shared_floats / 4)]);
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    if (sum.x + sum.y + sum.z + sum.w != 0) { // never: but the compiler cannot know
        *out = sum.x;
    }
}

/// Each block reads a part of the buffer in each round, another one than all other blocks, and
/// comes back to it after `parts` rounds: nothing is still in L1 then. The step keeps SMs apart:
/// with up to 132 of them, none asks for a part within 6 rounds of another, which would let
/// requests share one answer.
__global__ void read_L2(const float4* from, int rounds, float* out) {
    float4 sum{};
#pragma unroll 8
    for (int round = 0; round < rounds; ++round) {
        const int part = (blockIdx.x + 443 * round) % parts;
        const float4 x = __ldcg(&from[part * threads + threadIdx.x]);
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    if (sum.x + sum.y + sum.z + sum.w != 0) {
        *out = sum.x;
    }
}

/// Each block reads a part of its own, once.
__global__ void read_once(const float4* from, int64_t count, float* out) {
    float4 sum{};
#pragma unroll 8
    for (int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x; i < count;
         i += int64_t{threads} * gridDim.x) {
        const float4 x = from[i];
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    if (sum.x + sum.y + sum.z + sum.w != 0) {
        *out = sum.x;
    }
}

__global__ void read_shared(int rounds, float* out) {
    __shared__ float4 data[shared_floats / 4];
    for (int i = threadIdx.x; i < shared_floats / 4; i += threads) {
        data[i] = {};
    }
    __syncthreads();
    float4 sum{};
#pragma unroll 8
    for (int round = 0; round < rounds; ++round) {
        const float4 x = data[(threadIdx.x + 32 * round) % (shared_floats / 4)];
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    if (sum.x + sum.y + sum.z + sum.w != 0) {
        *out = sum.x;
    }
}

float median_of(std::vector<float> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

/// Median clocks per load of a chain through `bytes` of global memory.
float latency(size_t bytes, bool warm) {
    const int lines = static_cast<int>(bytes / line), ints = line / sizeof(int);
    std::vector<int> order(lines), next(size_t(lines) * ints);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin() + 1, order.end(), std::mt19937(1)); // every chain begins at line 0
    for (int i = 0; i < lines; ++i) {
        next[size_t(order[i]) * ints] = order[(i + 1) % lines] * ints;
    }
    int* chain = allocate<int>(next.size());
    float* clocks = allocate<float>(1);
    int* end = allocate<int>(1);
    char* other = allocate<char>(size_t{256} << 20);
    std::vector<float> found;
    for (int i = 0; i < repetitions; ++i) {
        check(cudaMemcpy(chain, next.data(), next.size() * sizeof(int), cudaMemcpyHostToDevice),
              "cudaMemcpy");
        // nothing of the chain is left in L2
        check(cudaMemset(other, i, size_t{256} << 20), "cudaMemset");
        chase<<<1, 1>>>(chain, warm ? lines : 0, clocks, end);
        check(cudaGetLastError(), "launch");
        float one;
        check(cudaMemcpy(&one, clocks, sizeof one, cudaMemcpyDeviceToHost), "chase");
        found.push_back(one);
    }
    for (void* buffer : {static_cast<void*>(chain), static_cast<void*>(clocks),
                         static_cast<void*>(end), static_cast<void*>(other)}) {
        check(cudaFree(buffer), "cudaFree");
    }
    return median_of(found);
}

/// Median seconds of a launch.
template <class Launch> double seconds(const Launch& launch) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> found;
    for (int i = 0; i < 3 + repetitions; ++i) {
        check(cudaEventRecord(begin), "cudaEventRecord");
        launch();
        check(cudaGetLastError(), "launch");
        check(cudaEventRecord(end), "cudaEventRecord");
        check(cudaEventSynchronize(end), "kernel");
        float milliseconds;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
        if (i >= 3) { // clocks have risen
            found.push_back(milliseconds);
        }
    }
    return median_of(found) / 1e3;
}

} // namespace

int main() {
    cudaDeviceProp gpu;
    check(cudaGetDeviceProperties(&gpu, 0), "looking for a GPU");
    const int SMs = gpu.multiProcessorCount;
    std::printf("SMs %d\n", SMs);
    std::printf("registers_bytes_per_sm %d\n", 4 * gpu.regsPerMultiprocessor);
    std::printf("shared_bytes_per_sm %zu\n", gpu.sharedMemPerMultiprocessor);
    std::printf("shared_bytes_per_block %zu\n", gpu.sharedMemPerBlockOptin);
    std::printf("l2_bytes %d\n", gpu.l2CacheSize);
    std::printf("memory_bytes %zu\n", gpu.totalGlobalMem);

    float* clocks = allocate<float>(1);
    int* end = allocate<int>(1);
    chase_shared<<<1, 32>>>(97, clocks, end);
    check(cudaGetLastError(), "launch");
    float shared_clocks;
    check(cudaMemcpy(&shared_clocks, clocks, sizeof shared_clocks, cudaMemcpyDeviceToHost),
          "chase_shared");
    std::printf("shared_latency_clocks %.1f\n", shared_clocks);
    std::printf("l1_latency_clocks %.1f\n", latency(size_t{32} << 10, true));
    std::printf("l2_latency_clocks %.1f\n", latency(size_t{8} << 20, true));
    std::printf("dram_latency_clocks %.1f\n", latency(size_t{512} << 20, false));

    float* out = allocate<float>(1);
    const int rounds = 4096;
    const double shared = seconds([&] { read_shared<<<2 * SMs, threads>>>(rounds, out); });
    std::printf("shared_bytes_per_s %.4g\n", 2. * SMs * threads * rounds * 16 / shared);

    const int64_t in_dram = (int64_t{4} << 30) / 16;
    const float4* from = allocate<float4>(in_dram);
    const double l1 = seconds([&] { read_L1<<<2 * SMs, threads>>>(from, rounds, out); });
    std::printf("l1_bytes_per_s %.4g\n", 2. * SMs * threads * rounds * 16 / l1);
    const double l2 = seconds([&] { read_L2<<<SMs, threads>>>(from, rounds, out); });
    std::printf("l2_bytes_per_s %.4g\n", 1. * SMs * threads * rounds * 16 / l2);
    const double dram = seconds([&] { read_once<<<2 * SMs, threads>>>(from, in_dram, out); });
    std::printf("dram_read_bytes_per_s %.4g\n", in_dram * 16 / dram);
}
