// What the host asks of the device: shared memory that a launch may not have, copies of what nobody
// wrote, more memory than there is; and how a run that watched nothing ends.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <sys/resource.h>

#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/simt/language/launch_syntax.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/report/ending.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;
using simt::run_log;

namespace {

struct OwnLog { // of this test alone
    OwnLog() { run_log().clear(); }
    ~OwnLog() { run_log().clear(); }
};

/// Memory of cudaMalloc, of which the detector knows which bytes were written.
template <class T> struct Memory {
    T* data = nullptr;
    explicit Memory(size_t size) { cudaMalloc(&data, size * sizeof(T)); }
    ~Memory() { cudaFree(data); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
};

template <int Number> __global__ void fill_shared(int* out) {
    int* const numbers = flash::dynamic_shared<int>();
    numbers[threadIdx.x] = Number;
    __syncthreads(); // the numbers are complete
    out[threadIdx.x] = numbers[31 - threadIdx.x];
}

struct Hit { // 7 bytes that nobody writes
    double time;
    bool valid;
};
struct Wide { // 4 of them, in 24 bytes
    double x, y;
    int number;
};

template <class T> __global__ void copy_each(const T* from, T* to) {
    to[threadIdx.x] = from[threadIdx.x]; // as a whole
}

__global__ void write_members(Hit* hits, Wide* wide) {
    hits[threadIdx.x].time = threadIdx.x;
    hits[threadIdx.x].valid = true;
    wide[threadIdx.x].x = threadIdx.x;
    wide[threadIdx.x].y = threadIdx.x;
    wide[threadIdx.x].number = static_cast<int>(threadIdx.x);
}

__global__ void number_them(float* numbers, int size) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < size) {
        numbers[i] = static_cast<float>(i);
    }
}

__device__ __attribute__((noinline)) int depth(int rest, volatile int* zero) {
    volatile int pad[16];
    pad[rest % 16] = zero[0];
    return rest == 0 ? pad[0] : 1 + depth(rest - 1, zero) + pad[rest % 16]; // recursion
}
__global__ void recurse(int* out, int* zero, int levels) { out[threadIdx.x] = depth(levels, zero); }

template <bool waits> __global__ void copy_by_pipeline(const int* in, int* out) {
    alignas(16) __shared__ int tile[32];
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], sizeof(int));
    __pipeline_commit();
    if (waits) {
        __pipeline_wait_prior(0);
    }
    out[threadIdx.x] = tile[threadIdx.x]; // own element
}

long most_kilobytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

} // namespace

TEST_CASE("more than 48 KiB of dynamic shared memory want cudaFuncSetAttribute", "[faults]") {
    const OwnLog log;
    const With chosen({.detect = true});
    const Buffer<int> out(32);
    const auto start = [&](size_t bytes) {
        simt::configured(fill_shared<1>, 1, 32, bytes)(out.data());
    };
    const Fault refused = fault_of([&] { start((48 << 10) + 4); });
    CHECK(refused.kind == FaultKind::launch);
    CHECK_THAT(refused.what(), ContainsSubstring("more than the 49152 that this kernel may have"));
    start(48 << 10);
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, fill_shared<1>);
    CHECK(attributes.maxDynamicSharedSizeBytes == 48 << 10);
    REQUIRE(cudaFuncSetAttribute(fill_shared<1>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 64 << 10) == cudaSuccess);
    start(64 << 10);
    CHECK(fault_of([&] { start((64 << 10) + 4); }).kind == FaultKind::launch);
    // flash::launch raises the limit itself, as on a GPU
    launch(fill_shared<2>, 1, 32, size_t{100} << 10, out.data());
    // and cudaLaunchKernel does not
    int* data = out.data();
    void* all[] = {&data};
    CHECK(fault_of([&] {
              cudaLaunchKernel(fill_shared<3>, dim3(1), dim3(32), all, size_t{50} << 10, nullptr);
          }).kind == FaultKind::launch);
}

TEST_CASE("gaps between the members of structs may be copied, and nothing else unwritten") {
    const OwnLog log;
    const With chosen({.detect = true});
    const Memory<Hit> hits(32), more_hits(32);
    const Memory<Wide> wide(32), more_wide(32);
    const Memory<Hit> one_hit(1);
    const Memory<Wide> one_wide(1);
    launch(write_members, 1, 32, 0, hits.data, wide.data);
    launch(copy_each<Hit>, 1, 32, 0, hits.data, more_hits.data);
    launch(copy_each<Wide>, 1, 32, 0, wide.data, more_wide.data);
    launch(write_members, 1, 1, 0, one_hit.data, one_wide.data);
    launch(copy_each<Hit>, 1, 1, 0, one_hit.data, more_hits.data);
    Hit host_hits[32];
    Wide host_wide[32];
    cudaMemcpy(host_hits, more_hits.data, sizeof host_hits, cudaMemcpyDeviceToHost);
    cudaMemcpy(host_wide, more_wide.data, sizeof host_wide, cudaMemcpyDeviceToHost);
    cudaMemcpy(host_wide, one_wide.data, sizeof host_wide[0], cudaMemcpyDeviceToHost);
    CHECK(run_log().warnings().empty());

    // the last three of 64 floats, of which a float4 wants all
    const Memory<float> numbers(64), copy(64);
    launch(number_them, 1, 64, 0, numbers.data, 61);
    const auto* const from = reinterpret_cast<const float4*>(numbers.data);
    auto* const to = reinterpret_cast<float4*>(copy.data);
    fault_at("as a whole", FaultKind::uninitialised,
             [&] { launch(copy_each<float4>, 1, 16, 0, from, to); });
}

TEST_CASE("a copy to the host of what nobody has written is a warning") {
    const OwnLog log;
    const Memory<float> numbers(100);
    float host[100];
    {
        const With options({.detect = true});
        launch(number_them, 3, 32, 0, numbers.data, 100);
        cudaMemcpy(host, numbers.data, 96 * sizeof(float), cudaMemcpyDeviceToHost);
        CHECK(run_log().warnings().empty());
        cudaMemcpy(host, numbers.data, sizeof host, cudaMemcpyDeviceToHost); // four too many
        REQUIRE(run_log().warnings().size() == 1);
        const Fault& warning = run_log().warnings().front();
        CHECK(warning.kind == FaultKind::unwritten_copy);
        CHECK(warning.where.line.line == line_of(__FILE__, "four too many"));
        CHECK_THAT(warning.what(), ContainsSubstring("16 bytes of data"));
        CHECK_THAT(warning.what(), ContainsSubstring("the first is byte 384"));
    }
    const With strict({.detect = true, .strict = true});
    CHECK(fault_of([&] {
              cudaMemcpy(host, numbers.data, sizeof host, cudaMemcpyDeviceToHost);
          }).kind == FaultKind::unwritten_copy);
}

TEST_CASE("cudaMalloc gives no more than the device has") {
    const With chosen({.memory_mib = 3});
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    CHECK(total == size_t{3} << 20);
    const size_t before = free;
    {
        const Memory<char> two(2 << 20);
        REQUIRE(two.data != nullptr);
        cudaMemGetInfo(&free, &total);
        CHECK(free == before - (2 << 20));
        void* more = nullptr;
        CHECK(cudaMalloc(&more, 2 << 20) == cudaErrorMemoryAllocation);
        CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    }
    const Memory<char> again(2 << 20);
    CHECK(again.data != nullptr);
}

TEST_CASE("a recursion takes memory by its depth, and ends in a line that can be read") {
    const With chosen({.detect = true});
    const Buffer<int> out(32), zero(1);
    const long before = most_kilobytes();
    launch(recurse, 1, 32, 0, out.data(), zero.data(), 2000);
    CHECK(out.values()[31] == 2000);
    CHECK(most_kilobytes() - before < 300'000);
    const Fault deep =
        fault_of([&] { launch(recurse, 1, 32, 0, out.data(), zero.data(), 100'000); });
    CHECK_THAT(deep.what(), ContainsSubstring("the thread's local variables exceed 512 KiB"));
    CHECK(deep.where.line.line == line_of(__FILE__, "recursion"));
    CHECK_THAT(deep.what(), ContainsSubstring("calls more"));
}

TEST_CASE("cp.async by the functions of cuda_pipeline.h", "[faults]") {
    const Buffer<int> in(std::vector<int>(32, 5)), out(32);
    in_every_way([&] {
        launch(copy_by_pipeline<true>, 1, 32, 0, in.data(), out.data());
        CHECK(out.values() == in.values());
        CHECK(fault_of([&] {
                  launch(copy_by_pipeline<false>, 1, 32, 0, in.data(), out.data());
              }).kind == FaultKind::async_copy_in_flight);
    });
}

TEST_CASE("a run that watched nothing is not clean") {
    const OwnLog log;
    const With chosen({.detect = true, .kernel = "another"});
    CHECK(simt::ending() == simt::Ending::unchecked);
    const Buffer<int> out(32);
    launch(fill_shared<4>, 1, 32, 128, out.data());
    CHECK(simt::ending() == simt::Ending::unchecked);
    CHECK(simt::exit_code(0) == simt::exit_unchecked);
    CHECK(simt::exit_code(3) == 3);
    CHECK_THAT(simt::ending_line(), ContainsSubstring("nothing was checked: 1 kernel, 1 launch"));
}
