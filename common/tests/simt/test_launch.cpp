// What a launch may ask for, in which order blocks and threads run, and that it is the same every
// time.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "common/simt/machine/program.hpp"
#include "common/simt/machine/workers.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

__global__ void number_threads(int* out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    out[block * threads + thread] += block * threads + thread;
}

__global__ void nothing() {}

__global__ void large_tile(float* out) {
    __shared__ float tile[40 << 8];
    tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void too_large_tile(float* out) {
    __shared__ float tile[49 << 8];
    tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

/// Writes down the order in which threads come by.
__global__ void sign_in(int* next, int* order) {
    order[atomicAdd(next, 1)] = threadIdx.x;
    __syncthreads();
    order[atomicAdd(next, 1)] = threadIdx.x;
}

__global__ void sign_in_blocks(int* next, int* order) { order[atomicAdd(next, 1)] = blockIdx.x; }

__global__ void count_threads(int* count) { atomicAdd(count, 1); }

__global__ void alignment_of_shared(int* out) {
    out[0] = static_cast<int>(reinterpret_cast<size_t>(flash::dynamic_shared<float>()) % 1024);
}

int counted_by(unsigned blocks) {
    const Buffer<int> count(1);
    launch(count_threads, blocks, 32, 0, count.data());
    return count.values()[0];
}

/// Whether a child process can do this, and end as a program does.
bool child_can(bool (*work)()) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        std::exit(work() ? 0 : 1); // with destructors of what is static
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
bool child_can_launch() {
    return child_can([] { return counted_by(5) == 5 * 32 && counted_by(7) == 7 * 32; });
}

std::string refusal(dim3 grid, dim3 block, size_t smem) {
    const Fault fault = fault_of([&] {
        launch(nothing, grid, block, smem); // refused here
    });
    CHECK(fault.kind == FaultKind::launch);
    return fault.what();
}

std::vector<int> order_of(void (*kernel)(int*, int*), int blocks, int threads, int entries,
                          simt::Schedule schedule) {
    const With scheduled({.schedule = schedule, .workers = 1});
    const Buffer<int> next(1), order(static_cast<size_t>(entries));
    launch(kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, next.data(),
           order.data());
    return order.values();
}

} // namespace

TEST_CASE("every thread of every block runs once, with its own indices") {
    for (const simt::Schedule& schedule : schedules()) {
        const With scheduled({.schedule = schedule});
        const Buffer<int> out(5 * 3 * 2 * 7 * 4 * 3);
        launch(number_threads, dim3(5, 3, 2), dim3(7, 4, 3), 0, out.data());
        std::vector<int> expected(out.values().size());
        std::iota(expected.begin(), expected.end(), 0);
        CHECK(out.values() == expected);
    }
}

TEST_CASE("a launch that no GPU takes is refused, and says why") {
    CHECK_THAT(refusal(0u, 32, 0),
               ContainsSubstring("a grid of 0 x 1 x 1 blocks of 32 x 1 x 1 threads is empty"));
    CHECK_THAT(refusal(1u, dim3(8, 0, 1), 0), ContainsSubstring("is empty"));
    CHECK_THAT(refusal(dim3(1, 65536), 32, 0), ContainsSubstring("65535 in y and z"));
    CHECK_THAT(refusal(dim3(1, 1, 65536), 32, 0), ContainsSubstring("65535 in y and z"));
    CHECK_THAT(refusal(1u, 1025, 0),
               ContainsSubstring("1025 x 1 x 1 threads per block are too many; the limit is 1024"));
    CHECK_THAT(refusal(1u, dim3(32, 33), 0), ContainsSubstring("too many"));
    CHECK_THAT(refusal(1u, dim3(1, 1, 65), 0), ContainsSubstring("64 in z"));
    const std::string text = refusal(1u, 32, 163 * 1024 + 1);
    CHECK_THAT(text,
               ContainsSubstring(
                   "166913 bytes of shared memory per block are too many: the limit is 166912"));
    CHECK_THAT(text, ContainsSubstring("cannot launch nothing"));
    CHECK_THAT(text, ContainsSubstring("test_launch.cpp:" +
                                       std::to_string(line_of(__FILE__, "refused here"))));
    CHECK_NOTHROW(launch(nothing, dim3(1, 1, 65535), 1, 163 * 1024));
    CHECK_NOTHROW(launch(nothing, 1u, dim3(16, 1, 64), 0));
}

TEST_CASE("the limit on shared memory can be chosen, and __shared__ variables count") {
    const Buffer<float> out(32);
    CHECK_NOTHROW(launch(large_tile, 1, 32, 123 * 1024, out.data()));
    const Fault fault = fault_of([&] { launch(large_tile, 1, 32, 124 * 1024, out.data()); });
    CHECK(fault.kind == FaultKind::launch);
    CHECK_THAT(fault_of([&] { launch(too_large_tile, 1, 32, 0, out.data()); }).what(),
               ContainsSubstring("50176 bytes of __shared__ variables are too many"));
    const With smaller({.shared_kib = 99});
    CHECK_NOTHROW(launch(large_tile, 1, 32, 59 * 1024, out.data()));
    CHECK_THAT(fault_of([&] { launch(large_tile, 1, 32, 60 * 1024, out.data()); }).what(),
               ContainsSubstring(
                   "102400 bytes of shared memory per block are too many: the limit is 101376"));
}

TEST_CASE("blocks at the same time: an SM has 1 KiB more than a block may have, each block costs 1 "
          "KiB more than it "
          "asks for") {
    struct Case {
        int shared_kib;
        size_t block_kib;
        int blocks;
    };
    for (const Case& c : {Case{99, 99, 1},
                          {99, 100, 0},
                          {99, 49, 2},
                          {163, 82, 1},
                          {163, 81, 2},
                          {227, 113, 2},
                          {227, 114, 1},
                          {227, 0, 16}}) {
        const With size({.shared_kib = c.shared_kib});
        CAPTURE(c.shared_kib, c.block_kib);
        CHECK(flash::max_shared_memory_per_block() == static_cast<size_t>(c.shared_kib) << 10);
        CHECK(flash::resident_blocks(false, 128, c.block_kib << 10) == 4 * c.blocks);
        // Hopper has more
        CHECK(flash::resident_blocks(true, 128, c.block_kib << 10) >= 4 * c.blocks);
    }
}

TEST_CASE("dynamic shared memory is aligned to 1024 bytes") {
    const Buffer<int> out(std::vector<int>{7});
    for (const size_t bytes : {4, 1000, 1024, 41728}) {
        launch(alignment_of_shared, 1, 1, bytes, out.data());
        CHECK(out.values()[0] == 0);
    }
}

TEST_CASE("schedules run threads in the order that they name") {
    using simt::Schedule;
    std::vector<int> once(96);
    std::iota(once.begin(), once.end(), 0);
    const auto twice = [](std::vector<int> order) {
        const auto size = static_cast<std::ptrdiff_t>(order.size());
        order.resize(2 * order.size());
        std::copy_n(order.begin(), size, order.begin() + size);
        return order;
    };
    CHECK(order_of(sign_in, 1, 96, 192, {Schedule::in_order, 0}) == twice(once));
    CHECK(order_of(sign_in, 1, 96, 192, {Schedule::reverse, 0}) ==
          twice({once.rbegin(), once.rend()}));
    std::vector<int> second_first = once;
    std::rotate(second_first.begin(), second_first.begin() + 32, second_first.begin() + 64);
    CHECK(order_of(sign_in, 1, 96, 192, {Schedule::one_warp_ahead, 1}) == twice(second_first));
    std::vector<int> last_is_40 = once;
    std::rotate(last_is_40.begin() + 40, last_is_40.begin() + 41, last_is_40.end());
    CHECK(order_of(sign_in, 1, 96, 192, {Schedule::starve, 40}) == twice(last_is_40));

    const std::vector<int> shuffled = order_of(sign_in, 1, 96, 192, {Schedule::shuffle, 5});
    CHECK(shuffled == order_of(sign_in, 1, 96, 192, {Schedule::shuffle, 5}));
    CHECK(shuffled != order_of(sign_in, 1, 96, 192, {Schedule::shuffle, 6}));
    CHECK(std::is_permutation(shuffled.begin(), shuffled.begin() + 96, once.begin()));
    CHECK(std::is_permutation(shuffled.begin() + 96, shuffled.end(), once.begin()));
}

TEST_CASE("schedules run blocks in the order that they name") {
    using simt::Schedule;
    std::vector<int> once(10);
    std::iota(once.begin(), once.end(), 0);
    CHECK(order_of(sign_in_blocks, 10, 1, 10, {Schedule::in_order, 0}) == once);
    CHECK(order_of(sign_in_blocks, 10, 1, 10, {Schedule::reverse, 0}) ==
          std::vector<int>(once.rbegin(), once.rend()));
    for (uint64_t seed = 0; seed < 12; ++seed) {
        const std::vector<int> shuffled =
            order_of(sign_in_blocks, 10, 1, 10, {Schedule::shuffle, seed});
        CHECK(std::is_permutation(shuffled.begin(), shuffled.end(), once.begin()));
    }
}

TEST_CASE("a block of 1024 threads runs on 1, 40 and 256 workers") {
    for (const int workers : {1, 40, 256}) {
        CAPTURE(workers);
        const With chosen({.workers = workers});
        const Buffer<int> count(1);
        launch(count_threads, 300, 1024, 0, count.data());
        CHECK(count.values()[0] == 300 * 1024);
    }
}

// the test below runs it, in a process of its own
TEST_CASE("with memory for few workers", "[.][few]") {
    const rlimit little{size_t{1} << 30, size_t{1} << 30};
    setrlimit(RLIMIT_DATA, &little);
    const With chosen({.workers = 40});
    const Buffer<int> count(1);
    launch(count_threads, 300, 1024, 0, count.data());
    CHECK(count.values()[0] == 300 * 1024);
}

TEST_CASE("where memory is short, fewer workers run the kernel, and a line says so") {
    const std::string command = "\"" + simt::program_file() + "\" \"[few]\" 2>&1";
    std::string text;
    std::FILE* const output = popen(command.c_str(), "r");
    for (int c = std::fgetc(output); c != EOF; c = std::fgetc(output)) {
        text += static_cast<char>(c);
    }
    CHECK(pclose(output) == 0);
    CHECK_THAT(text, ContainsSubstring("simt: memory for ") &&
                         ContainsSubstring(" of 40 workers; going on with those"));
}

TEST_CASE("what a worker throws reaches the launch") {
    const std::function<void(simt::Block&)> work = [](simt::Block&) {
        throw Error("from a worker");
    };
    const simt::BlocksToRun blocks{3, 32, 3, [] { return false; }, 8};
    CHECK_THROWS_WITH(simt::run_on_workers(blocks, work), "from a worker");
    const Buffer<int> count(1);
    launch(count_threads, 3, 32, 0, count.data());
    CHECK(count.values()[0] == 3 * 32);
}

TEST_CASE("a lambda expression of the host is no kernel") {
    void (*const lambda)(int*) = [](int* out) { launch(count_threads, 1, 1, 0, out); };
    CHECK_THAT(fault_of([&] { launch(lambda, 1, 32, 0, static_cast<int*>(nullptr)); }).what(),
               ContainsSubstring("it is a lambda expression of the host"));
}

TEST_CASE("a process that has launched kernels can fork, and its child launches kernels") {
    const With chosen({.workers = 3});
    REQUIRE(counted_by(9) == 9 * 32);
    CHECK(child_can_launch());
    CHECK(child_can([] { return true; }));
    CHECK(counted_by(9) == 9 * 32);
}

TEST_CASE("fork() waits for the launch of another host thread") {
    const With chosen({.workers = 3});
    const Buffer<int> count(1); // the other thread launches, and does nothing else
    std::thread launches([&] {
        for (int i = 0; i < 20; ++i) {
            launch(count_threads, 300, 32, 0, count.data());
        }
    });
    for (int i = 0; i < 5; ++i) {
        CHECK(child_can_launch());
    }
    launches.join();
    CHECK(count.values()[0] == 20 * 300 * 32);
}
