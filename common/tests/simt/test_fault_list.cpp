// The list of faults: for each a broken kernel and the same kernel put right, in every schedule and
// with copies landing early and late. The broken one must be stopped at the lines that are at
// fault, the right one must pass. test_simt --list-tests "[faults]" prints the list; docs/simt.md
// shows it with the messages.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr unsigned threads = 64, blocks = 2;

__device__ unsigned number() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <bool right> __global__ void read_past_end(const float* in, float* out) {
    const unsigned i = right ? number() : number() + 1;
    out[number()] = in[i]; // global read
}

template <bool right> __global__ void write_past_end(const float* in, float* out) {
    out[right ? number() : number() + 1] = in[number()]; // global write
}

template <bool right> __global__ void read_outside_tile(const float* in, float* out) {
    __shared__ float tile[threads];
    tile[threadIdx.x] = in[number()];
    __syncthreads();                                       // the tile is complete
    out[number()] = tile[threadIdx.x + (right ? 0u : 1u)]; // shared read
}

template <bool right> __global__ void write_outside_tile(const float* in, float* out) {
    float* tile = flash::dynamic_shared<float>();
    tile[threadIdx.x + (right ? 0u : 1u)] = in[number()]; // shared write
    __syncthreads();                                      // the tile is complete
    out[number()] = tile[threadIdx.x];
}

template <bool right> __global__ void misaligned(const float* in, float* out) {
    const float* const first = in + 4 * (number() / 4) + (right ? 0 : 1);
    // vector of four
    const float4 four = *reinterpret_cast<const float4*>(number() < 4 ? first : in);
    out[number()] = four.x;
}

template <bool right> __global__ void race_in_block(const float* in, float* out) {
    __shared__ float tile[threads];
    tile[threadIdx.x] = in[number()]; // write before a barrier
    if (right) {
        __syncthreads(); // the tile is complete
    }
    out[number()] = tile[threads - 1 - threadIdx.x]; // read after a barrier
}

template <bool right> __global__ void race_in_warp(const float* in, float* out) {
    __shared__ float tile[threads];
    tile[threadIdx.x] = in[number()]; // write before a __syncwarp
    if (right) {
        __syncwarp(); // the warp's part is complete
    }
    out[number()] = tile[threadIdx.x ^ 1u]; // read after a __syncwarp
}

template <bool right> __global__ void race_of_blocks(const float* in, float* out) {
    const float value = in[number()] + static_cast<float>(blockIdx.x);
    out[right ? number() : threadIdx.x] = value; // write by every block
}

template <bool right> __global__ void early_exit(const float* in, float* out) {
    if (!right && threadIdx.x >= 50) {
        return;
    }
    __syncthreads(); // not reached by all
    out[number()] = in[number()];
}

template <bool right> __global__ void divergent_barrier(const float* in, float* out) {
    if (right || threadIdx.x < 32) {
        __syncthreads(); // barrier of the first warp
    } else {
        __syncthreads(); // barrier of the second warp
    }
    out[number()] = in[number()];
}

template <bool right> __global__ void deadlock(const float* in, float* out) {
    float value = in[number()];
    if (right || threadIdx.x < 16) {
        value = __shfl_xor_sync(0xffffffffu, value, 1); // shuffle of a whole warp
    } else {
        __syncthreads(); // where the others wait
    }
    out[number()] = value;
}

template <bool right> __global__ void uninitialised(const float* in, float* out) {
    __shared__ float tile[threads];
    if (right || threadIdx.x != 7) {
        tile[threadIdx.x] = in[number()];
    }
    __syncthreads();                                 // the tile is complete
    out[number()] = tile[threads - 1 - threadIdx.x]; // read of what nobody wrote
}

template <bool right> __global__ void copy_in_flight(const float* in, float* out) {
    float* tile = flash::dynamic_shared<float>();
    if (threadIdx.x % 4 == 0) {
        cp_async_16(tile + threadIdx.x, in + number()); // copy
        cp_async_commit();
        if (right) {
            cp_async_wait<0>();
        }
        out[number()] = tile[threadIdx.x + 3]; // use of the copy
    }
}

__global__ void nothing(const float*, float*) {}

using KernelOfList = void (*)(const float*, float*);

void run(KernelOfList kernel) {
    const Buffer<float> in(blocks * threads), out(blocks * threads);
    launch(kernel, blocks, threads, threads * sizeof(float), static_cast<const float*>(in.data()),
           out.data());
}

/// `lines`: of the access or call that is reported, and of the other one if there is one; in either
/// order.
void list(KernelOfList broken, KernelOfList right, FaultKind kind,
          const std::vector<const char*>& lines, const char* message) {
    in_every_way([&] {
        const Fault fault = fault_of([&] { run(broken); });
        CAPTURE(fault.what());
        CHECK(fault.kind == kind);
        CHECK(fault.where.line.file.ends_with("test_fault_list.cpp"));
        CHECK(fault.has_other == (lines.size() == 2));
        int sum = 0;
        for (const char* const tag : lines) {
            sum += line_of(__FILE__, tag);
        }
        CHECK(fault.where.line.line + fault.other.line.line == sum);
        CHECK_THAT(fault.what(), ContainsSubstring(message) && ContainsSubstring(" of block ("));
        CHECK_NOTHROW(run(right));
    });
}

} // namespace

TEST_CASE("fault: a read past the end of global memory", "[faults]") {
    list(read_past_end<false>, read_past_end<true>, FaultKind::out_of_bounds, {"global read"},
         "out of bounds: 4 bytes, just past the end of data (512 bytes)");
}

TEST_CASE("fault: a write past the end of global memory", "[faults]") {
    list(write_past_end<false>, write_past_end<true>, FaultKind::out_of_bounds, {"global write"},
         "out of bounds: 4 bytes, just past the end of data (512 bytes)");
}

TEST_CASE("fault: a read outside a __shared__ array", "[faults]") {
    list(read_outside_tile<false>, read_outside_tile<true>, FaultKind::out_of_bounds,
         {"shared read"}, "out of bounds: 4 bytes, just past the end of tile (256 bytes)");
}

TEST_CASE("fault: a write outside the dynamic shared memory", "[faults]") {
    list(write_outside_tile<false>, write_outside_tile<true>, FaultKind::out_of_bounds,
         {"shared write"},
         "out of bounds: 4 bytes, just past the end of the dynamic shared memory (256 bytes)");
}

TEST_CASE("fault: a misaligned vector access", "[faults]") {
    list(misaligned<false>, misaligned<true>, FaultKind::misaligned, {"vector of four"},
         "misaligned: an access of 16 bytes at byte 4 of data, and its address is no multiple of "
         "16");
}

TEST_CASE("fault: a race in shared memory", "[faults]") {
    list(race_in_block<false>, race_in_block<true>, FaultKind::race,
         {"write before a barrier", "read after a barrier"},
         "a __syncthreads() between the two would order them");
}

TEST_CASE("fault: a race within a warp", "[faults]") {
    list(race_in_warp<false>, race_in_warp<true>, FaultKind::race,
         {"write before a __syncwarp", "read after a __syncwarp"},
         "a __syncwarp() or __syncthreads() between the two would order them");
}

TEST_CASE("fault: a race of blocks in global memory", "[faults]") {
    list(race_of_blocks<false>, race_of_blocks<true>, FaultKind::race,
         {"write by every block", "write by every block"},
         "nothing orders threads of different blocks");
}

TEST_CASE("fault, with warnings as faults: a barrier that some threads never reach", "[faults]") {
    in_every_way([] {
        CHECK_NOTHROW(run(early_exit<false>));
        simt::options().strict = true;
        const Fault fault =
            fault_at("not reached by all", FaultKind::early_exit, [] { run(early_exit<false>); });
        CHECK_THAT(fault.what(),
                   ContainsSubstring("14 threads left the kernel, the first is (50,0,0)"));
        CHECK_NOTHROW(run(early_exit<true>));
    });
}

TEST_CASE("fault: a divergent barrier", "[faults]") {
    list(divergent_barrier<false>, divergent_barrier<true>, FaultKind::divergent_barrier,
         {"barrier of the first warp", "barrier of the second warp"},
         "threads of one block are at different barriers");
}

TEST_CASE("fault: a deadlock", "[faults]") {
    in_every_way([] {
        const Fault fault = fault_of([] { run(deadlock<false>); });
        CHECK(fault.kind == FaultKind::deadlock);
        const auto place = [](const char* tag, const char* rest) {
            return ContainsSubstring(
                "test_fault_list.cpp:" + std::to_string(line_of(__FILE__, tag)) + rest);
        };
        CHECK_THAT(
            fault.what(),
            ContainsSubstring("16 of 64 threads wait in __shfl_xor_sync at ") &&
                place("shuffle of a whole warp", " with mask 0xffffffff, the first is (0,0,0)") &&
                ContainsSubstring("48 of 64 threads wait in __syncthreads at ") &&
                place("where the others wait", ", the first is (16,0,0)"));
        CHECK_NOTHROW(run(deadlock<true>));
    });
}

TEST_CASE("fault: a read of shared memory that nobody wrote", "[faults]") {
    list(uninitialised<false>, uninitialised<true>, FaultKind::uninitialised,
         {"read of what nobody wrote"},
         "read of shared memory that no thread of the block has written, at byte 28 of tile");
}

TEST_CASE("fault: data of a cp.async is used before its wait", "[faults]") {
    list(copy_in_flight<false>, copy_in_flight<true>, FaultKind::async_copy_in_flight,
         {"copy", "use of the copy"}, "data of a cp.async is used before its wait");
}

TEST_CASE("fault: too much shared memory, too many threads", "[faults]") {
    in_every_way([] {
        float* const none = nullptr;
        const auto refusal = [&](unsigned size, size_t shared) {
            const auto run = [&] {
                // launch
                launch(nothing, 1, size, shared, static_cast<const float*>(none), none);
            };
            const Fault fault = fault_of(run);
            CHECK(fault.kind == FaultKind::launch);
            CHECK_THAT(fault.what(),
                       ContainsSubstring("test_fault_list.cpp:" +
                                         std::to_string(line_of(__FILE__, "launch"))));
            return std::string(fault.what());
        };
        CHECK_THAT(refusal(32, (163 << 10) + 1),
                   ContainsSubstring("166913 bytes of shared memory per block are too many"));
        CHECK_THAT(refusal(1025, 0),
                   ContainsSubstring("1025 x 1 x 1 threads per block are too many"));
        CHECK_NOTHROW(launch(nothing, 1, 1024, 163 << 10, static_cast<const float*>(none), none));
    });
}
