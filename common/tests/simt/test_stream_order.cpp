// What of streams is remembered, and for how long. Whole programs: cuda/streams.cu.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/simt/language/launch_syntax.hpp"
#include "common/simt/machine/stream_order.hpp"
#include "support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

__global__ void fill(int* a, int first, int count) {
    if (static_cast<int>(threadIdx.x) < count) {
        a[first + static_cast<int>(threadIdx.x)] = 1;
    }
}
__global__ void fill_every_other(int* a, int first, int count) {
    if (static_cast<int>(threadIdx.x) < count) {
        a[first + 2 * static_cast<int>(threadIdx.x)] = 1;
    }
}

/// A stream that waits for no other, until it is destroyed.
struct OwnStream {
    cudaStream_t stream = nullptr;
    OwnStream() {
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    }
    ~OwnStream() { cudaStreamDestroy(stream); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
};

/// Launches one block of 32 threads.
void start(void (*kernel)(int*, int, int), cudaStream_t stream, int* a, int first, int count) {
    simt::configured(kernel, 1, 32, 0, stream)(a, first, count);
}

bool may_fill(cudaStream_t stream, int* a, int first, int count) {
    try {
        start(fill, stream, a, first, count);
    } catch (const Fault& fault) {
        CHECK(fault.kind == FaultKind::unordered_streams);
        return false;
    }
    return true;
}

struct Memory {
    int *device = nullptr, *managed = nullptr;
    Memory() {
        REQUIRE(cudaMalloc(&device, 128 * sizeof(int)) == cudaSuccess);
        REQUIRE(cudaMallocManaged(&managed, 128 * sizeof(int)) == cudaSuccess);
    }
    ~Memory() {
        cudaFree(device);
        cudaFree(managed);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
};

} // namespace

TEST_CASE("stream order: alone, the default stream's works matter where the host reaches") {
    const With watched({.detect = true});
    const Memory memory;
    cudaDeviceSynchronize();
    start(fill, nullptr, memory.device, 0, 32);
    CHECK(!simt::works_are_pending);
    start(fill, nullptr, memory.managed, 0, 32);
    CHECK(simt::works_are_pending);
    cudaDeviceSynchronize();
    CHECK(!simt::works_are_pending);
    const OwnStream other;
    start(fill, nullptr, memory.device, 0, 32);
    CHECK(simt::works_are_pending);
}

TEST_CASE("stream order: of a stream each byte has its last work") {
    const With watched({.detect = true});
    const Memory memory;
    const OwnStream one, two, three;
    int* const a = memory.device;
    cudaEvent_t between;
    REQUIRE(cudaEventCreate(&between) == cudaSuccess);

    start(fill, one.stream, a, 0, 16);
    start(fill, one.stream, a, 24, 16);
    REQUIRE(cudaEventRecord(between, one.stream) == cudaSuccess);
    start(fill_every_other, one.stream, a, 8, 12); // 8, 10, ... 30: beyond the one, into the other
    REQUIRE(cudaStreamWaitEvent(two.stream, between) == cudaSuccess);

    for (int i = 0; i < 48; ++i) {
        CAPTURE(i);
        const bool is_last = i >= 8 && i <= 30 && i % 2 == 0;
        if (is_last || i < 16 || (i >= 24 && i < 40)) { // three knows of none
            CHECK(!may_fill(three.stream, a, i, 1));
        }
        CHECK(may_fill(two.stream, a, i, 1) == !is_last);
    }
    REQUIRE(cudaStreamSynchronize(one.stream) == cudaSuccess);
    CHECK(may_fill(two.stream, a, 0, 32));
    REQUIRE(cudaEventDestroy(between) == cudaSuccess);
}

TEST_CASE("stream order: a stream that is gone may still be at work") {
    const With watched({.detect = true});
    const Memory memory;
    const OwnStream other;
    const size_t streams = simt::clock_of(other.stream).size();
    {
        const OwnStream gone;
        start(fill, gone.stream, memory.device, 0, 32);
    }
    {
        const OwnStream next;
        CHECK(!may_fill(next.stream, memory.device, 0, 32));
        CHECK(may_fill(next.stream, memory.device, 32, 32));
    }
    cudaDeviceSynchronize();
    for (int i = 0; i < 9; ++i) { // the numbers of those that are gone
        const OwnStream next;
        CHECK(simt::clock_of(next.stream).size() <= streams + 2);
        CHECK(may_fill(next.stream, memory.device, 0, 32));
        cudaDeviceSynchronize();
    }
}
