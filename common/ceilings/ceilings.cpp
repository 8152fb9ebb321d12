// Measures what the cores of a processor reach together when nothing else holds them back, and
// prints it as JSON: fp32 multiply-adds in registers, and a copy in memory. scripts/bench compiles
// and runs this.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

#ifdef __AVX512F__
constexpr int lanes = 16;
#elif defined __AVX__
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
typedef float Vector __attribute__((vector_size(lanes * sizeof(float))));

constexpr int chains = 12; // independent sums hide the latency of each multiply-add
constexpr int rounds = 1 << 24;
constexpr int repetitions = 20; // about two seconds, in which a busy machine has a quiet moment

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// The fastest of a few runs: other programs can only make one slower.
template <class Work> double seconds_of(const Work& work) {
    work();
    double best = 1e9;
    for (int i = 0; i < repetitions; ++i) {
        const double start = now();
        work();
        best = std::min(best, now() - start);
    }
    return best;
}

float multiply_adds(float seed) {
    Vector x[chains], a, b;
    for (int lane = 0; lane < lanes; ++lane) {
        a[lane] = 0.5f + seed / 1000;
        b[lane] = 0.25f + 0.01f * static_cast<float>(lane);
        for (int i = 0; i < chains; ++i) {
            x[i][lane] = seed + static_cast<float>(i);
        }
    }
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < chains; ++i) {
            x[i] = x[i] * a + b; // one instruction where the processor has it
        }
    }
    float sum = 0;
    for (const Vector& vector : x) {
        sum += vector[0];
    }
    return sum;
}

} // namespace

int main() {
    const int threads = omp_get_max_threads();
    volatile float sink = 0; // what is stored here cannot be left out
    const double fma = seconds_of([&] {
#pragma omp parallel
        {
            const float sum = multiply_adds(static_cast<float>(omp_get_thread_num()));
#pragma omp critical
            sink = sink + sum;
        }
    });
    const size_t bytes = size_t{256} << 20;
    std::vector<char> source(bytes, 1), target(bytes, 2);
    const double copy = seconds_of([&] {
#pragma omp parallel for schedule(static)
        for (size_t part = 0; part < 1024; ++part) {
            std::memcpy(&target[part * (bytes / 1024)], &source[part * (bytes / 1024)],
                        bytes / 1024);
        }
    });
    std::printf("{\n  \"cpu_fma_flops\": %.6g,\n  \"cpu_copy_bytes_per_s\": %.6g\n}\n",
                2.0 * lanes * chains * rounds * threads / fma,
                2.0 * static_cast<double>(bytes) / copy);
    return 0;
}
