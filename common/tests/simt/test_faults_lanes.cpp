// What lanes and threads that part in a branch do wrong, and what only looks like that. As in
// test_fault_list.cpp each broken kernel stands beside the same one put right.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/simt/machine/run_log.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;
using simt::run_log;

namespace {

constexpr int threads = 64;

template <bool right> __global__ void barrier_in_branch(int* out) {
    __shared__ int tile[threads];
    const int own = static_cast<int>(threadIdx.x);
    tile[own] = own; // before the branch
    if (right || own % 2 == 0) {
        __syncthreads(); // in a branch
    }
    out[own] = tile[own ^ (right ? 1 : 0)]; // behind the branch
}

template <bool right> __global__ void barrier_in_loop(int* out) {
    __shared__ int tile[threads];
    const int own = static_cast<int>(threadIdx.x);
    int sum = 0;
    for (int i = own; i < (right ? 128 : 100); i += threads) {
        tile[own] = i;
        __syncthreads(); // the tile is complete
        sum += tile[threads - 1 - own];
        __syncthreads(); // all have read it
    }
    out[own] = sum; // behind the loop
}

__global__ void leave_at_once(int* out, int size) {
    __shared__ int tile[threads];
    const int own = static_cast<int>(threadIdx.x);
    if (own >= size) {
        return;
    }
    tile[own] = own;
    __syncthreads(); // the tile is complete
    out[own] = tile[size - 1 - own];
}

template <bool right> __global__ void vote_in_branch(unsigned* out) {
    unsigned lanes = 0;
    if (right || threadIdx.x % 32 < 16) {
        lanes = __ballot_sync(0xffffffffu, 1); // vote
    }
    out[threadIdx.x] = lanes; // behind the vote
}

template <bool right> __global__ void sum_in_guard(const int* in, int* out, int size) {
    const int own = static_cast<int>(threadIdx.x);
    int sum = own < size ? in[own] : 0;
    if (right || own < size) {
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, distance); // reads lanes that never come
        }
        if (own == 0) {
            *out = sum; // the sum
        }
    }
}

template <int first_distance> __global__ void sum_of_eight(const int* in, int* out) {
    const int own = static_cast<int>(threadIdx.x);
    if (own < 8) {
        int sum = in[own];
        for (int distance = first_distance; distance > 0; distance /= 2) {
            sum += __shfl_down_sync(0xffu, sum, distance); // reads beyond the mask
        }
        if (own == 0) {
            *out = sum; // the sum of eight
        }
    }
}

__global__ void sum_of_each_warp(const int* in, int* out) {
    int sum = in[threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, distance); // reads beyond the block
    }
    if (threadIdx.x % 32 == 0) {
        out[threadIdx.x / 32] = sum; // a warp's sum
    }
}

template <bool right> __global__ void volatile_sum(const int* in, int* out) {
    __shared__ int values[threads];
    const int own = static_cast<int>(threadIdx.x);
    values[own] = in[own];
    __syncthreads(); // the values are complete
    if (own < 32) {
        volatile int* sums = values;
        int sum = sums[own] + sums[own + 32];
        for (int distance = 16; distance > 0; distance /= 2) {
            sums[own] = sum;
            if (right) {
                __syncwarp(); // the warp's sums are complete
            }
            sum += sums[own + distance];
            if (right) {
                __syncwarp(); // all have read them
            }
        }
        if (own == 0) {
            *out = sum;
        }
    }
}

__global__ void poll_flag(int* out) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) {
        flag = 0;
    }
    __syncthreads(); // the flag is there
    if (threadIdx.x == 63) {
        flag = 1;
    } else if (threadIdx.x >= 32) {
        while (flag == 0) {
        }
    }
    out[threadIdx.x] = 1;
}

/// Each value follows that of the next two; the last one is the other block's.
__global__ void follow(volatile int* values, int size) {
    const int own = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    int value = 0;
    while (value == 0) {
        value = own == size - 1 ? 1 : 0;
        for (int next = own + 1; next < size && next < own + 3; ++next) {
            value |= values[next];
        }
        values[own] = value;
    }
}

__global__ void largest_by_cas(int* result) {
    const int own = static_cast<int>(threadIdx.x * 3 % 101);
    int seen = *result; // plain read
    int before = 0;
    do {
        before = seen;
        seen = atomicCAS(result, before, std::max(before, own)); // checks it
    } while (seen != before);
}

__global__ void largest_unchecked(int* result) {
    const int own = static_cast<int>(threadIdx.x * 3 % 101);
    if (*result < own) { // plain read, unchecked
        atomicMax(result, own);
    }
}

__global__ void race_across_iterations(int* out) {
    __shared__ int tile[threads];
    for (int i = 0; i < 3; ++i) {
        tile[threadIdx.x] = i;                              // writes the tile again
        __syncthreads();                                    // a barrier between
        out[threadIdx.x] = tile[threads - 1 - threadIdx.x]; // reads the tile
    }
}

/// What was warned of in a launch that has no fault.
template <class Launch> std::vector<FaultKind> warned_kinds(Launch run) {
    run_log().clear();
    run();
    std::vector<FaultKind> kinds;
    for (const Fault& one : run_log().warnings()) {
        kinds.push_back(one.kind);
    }
    CHECK(run_log().faults().empty());
    run_log().clear();
    return kinds;
}

} // namespace

TEST_CASE("a barrier in a branch or loop that not all threads take", "[faults]") {
    const Buffer<int> out(threads);
    in_every_way([&] {
        const auto branch =
            fault_of([&] { launch(barrier_in_branch<false>, 1, 64, 0, out.data()); });
        CHECK(branch.kind == FaultKind::divergent_barrier);
        check_lines(branch, "in a branch", "behind the branch");
        const auto loop = fault_of([&] { launch(barrier_in_loop<false>, 1, 64, 0, out.data()); });
        CHECK(loop.kind == FaultKind::divergent_barrier);
        CHECK(loop.other.line.line == line_of(__FILE__, "behind the loop"));
        CHECK(warned_kinds([&] {
                  launch(barrier_in_branch<true>, 1, 64, 0, out.data());
                  launch(barrier_in_loop<true>, 1, 64, 0, out.data());
              }).empty());
        CHECK(warned_kinds([&] { launch(leave_at_once, 1, 64, 0, out.data(), 50); }) ==
              std::vector{FaultKind::early_exit});
    });
}

TEST_CASE("a mask that names lanes which never come", "[faults]") {
    const Buffer<unsigned> out(threads);
    in_every_way([&] {
        const auto vote = fault_at("vote", FaultKind::divergent_barrier,
                                   [&] { launch(vote_in_branch<false>, 1, 64, 0, out.data()); });
        CHECK(vote.other.line.line == line_of(__FILE__, "behind the vote"));
        CHECK_THAT(vote.what(), ContainsSubstring("the mask is 0xffffffff, and 16 lanes"));
        CHECK(warned_kinds([&] { launch(vote_in_branch<true>, 1, 64, 0, out.data()); }).empty());
    });
}

TEST_CASE("a shuffle reads a lane that takes no part", "[faults]") {
    const Buffer<int> in(std::vector<int>(threads, 1)), out(2);
    in_every_way([&] {
        const auto check = [](const Fault& fault, const char* reads, const char* writes) {
            CAPTURE(fault.what());
            CHECK(fault.kind == FaultKind::undefined_shuffle);
            check_lines(fault, reads, writes);
        };
        check(fault_of([&] { launch(sum_in_guard<false>, 1, 32, 0, in.data(), out.data(), 20); }),
              "reads lanes that never come", "the sum");
        check(fault_of([&] { launch(sum_of_eight<16>, 1, 32, 0, in.data(), out.data()); }),
              "reads beyond the mask", "the sum of eight");
        check(fault_of([&] { launch(sum_of_each_warp, 1, 48, 0, in.data(), out.data()); }),
              "reads beyond the block", "a warp's sum");
        // lanes 4 to 7 read beyond the mask, and nobody waits for their sums
        CHECK(warned_kinds([&] {
                  launch(sum_of_eight<4>, 1, 32, 0, in.data(), out.data());
                  CHECK(out.values()[0] == 8);
                  launch(sum_in_guard<true>, 1, 32, 0, in.data(), out.data(), 20);
                  CHECK(out.values()[0] == 20);
                  launch(sum_of_each_warp, 1, 64, 0, in.data(), out.data());
              }).empty());
    });
}

TEST_CASE("volatile orders no lanes of a warp", "[faults]") {
    const Buffer<int> in(std::vector<int>(threads, 1)), out(threads);
    in_every_way([&] {
        const auto sum =
            fault_of([&] { launch(volatile_sum<false>, 1, 64, 0, in.data(), out.data()); });
        CHECK(sum.kind == FaultKind::race);
        CHECK_THAT(sum.what(), ContainsSubstring("__syncwarp()"));
        CHECK(warned_kinds([&] {
                  launch(volatile_sum<true>, 1, 64, 0, in.data(), out.data());
              }).empty());
        CHECK(out.values()[0] == 64);
    });
    // a lane that waits for a flag waits for a value, not for an order
    const With chosen({.detect = true});
    warned_kinds([&] { launch(poll_flag, 1, 64, 0, out.data()); });
}

TEST_CASE("who polls and writes what it had written lets other blocks run") {
    for (const int workers : {1, 2}) {
        const With chosen({.detect = true, .workers = workers, .timeout = 20});
        const Buffer<int> values(threads);
        warned_kinds([&] { launch(follow, 2, 32, 0, values.data(), threads); });
        CHECK(values.values() == std::vector<int>(threads, 1));
    }
}

TEST_CASE("a plain read whose value an atomicCAS checks is a warning", "[faults]") {
    in_every_way([&] {
        const Buffer<int> result(1), other(1);
        const auto kinds = warned_kinds([&] { launch(largest_by_cas, 2, 64, 0, result.data()); });
        CHECK(result.values()[0] == 99);
        CHECK_FALSE(kinds.empty());
        for (const FaultKind kind : kinds) {
            CHECK(kind == FaultKind::read_before_cas);
        }
        CHECK(fault_of([&] { launch(largest_unchecked, 2, 64, 0, other.data()); }).kind ==
              FaultKind::race);
    });
}

TEST_CASE("a race across iterations says that both came since the barrier between its lines") {
    const With chosen({.detect = true});
    const Buffer<int> out(threads);
    const Fault race = fault_of([&] { launch(race_across_iterations, 1, 64, 0, out.data()); });
    check_lines(race, "writes the tile again", "reads the tile");
    CHECK_THAT(race.what(), ContainsSubstring("both since the barrier at"));
    CHECK_THAT(race.what(),
               ContainsSubstring(":" + std::to_string(line_of(__FILE__, "a barrier between"))));
}
