// The detector with several workers: blocks that have nothing to do with each other run side by
// side, and all others as if there were one worker.
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <cstdio>

#include "common/tests/simt/support.hpp"

using namespace simt_test;

namespace {

constexpr unsigned blocks = 8;

// Of the kernel that ran last: how often each block has run, and on which OS thread.
std::array<unsigned, blocks> runs;
std::array<pthread_t, blocks> worker_of;

/// The calling thread's block has begun. Waits a moment for one of another worker.
[[gnu::no_sanitize_thread, gnu::noinline]] void sign_in(unsigned block) {
    worker_of[block] = pthread_self();
    __atomic_fetch_add(&runs[block], 1, __ATOMIC_SEQ_CST);
    for (int look = 0; look < 200; ++look) {
        for (unsigned other = 0; other < blocks; ++other) {
            if (__atomic_load_n(&runs[other], __ATOMIC_SEQ_CST) != 0 &&
                worker_of[other] != worker_of[block]) {
                return;
            }
        }
        timespec moment{0, 1'000'000};
        nanosleep(&moment, nullptr);
    }
}

template <class T> __global__ void each_its_own(T* out, const int* in) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<T>(in[threadIdx.x] + 1);
}

__global__ void next_ones(int* data) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x);
    }
    const unsigned next = (blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x;
    data[blockIdx.x * blockDim.x + threadIdx.x] = data[next] + 1; // the next block's
}

__global__ void one_byte(uint8_t* out) {
    sign_in(blockIdx.x);
    out[5] = static_cast<uint8_t>(blockIdx.x); // all of them
}

__global__ void read_beyond(int* out, const int* in) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x);
        out[blockIdx.x] = in[blockIdx.x < 3 ? 0 : 1000]; // beyond
    }
}

__global__ void count(int* total, int* ticket) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x);
        ticket[blockIdx.x] = atomicAdd(total, 1);
    }
}

__global__ void with_heap(int* out) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x);
        int* const own = new int(static_cast<int>(blockIdx.x) + 1);
        out[blockIdx.x] = *own;
        delete own;
    }
}

__global__ void say(const char* word) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x);
        printf("%s %u\n", word, blockIdx.x);
    }
}

/// What `launch` prints.
template <class Launch> std::string printed_by(Launch launch) {
    std::FILE* const file = std::tmpfile();
    std::fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    launch();
    std::fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    std::string text(1000, ' ');
    std::rewind(file);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
}

/// What is left of a launch that may end with a fault.
template <class Launch> std::string outcome_of(int workers, Launch launch) {
    const With chosen({.detect = true, .workers = workers});
    runs = {};
    try {
        launch();
    } catch (const Fault& fault) {
        return fault.what();
    }
    return "no fault";
}

unsigned different_workers() {
    unsigned different = 0;
    for (unsigned block = 0; block < blocks; ++block) {
        bool is_first = true;
        for (unsigned other = 0; other < block; ++other) {
            is_first = is_first && worker_of[other] != worker_of[block];
        }
        different += is_first ? 1 : 0;
    }
    return different;
}

} // namespace

TEST_CASE("watched blocks that have nothing to do with each other run side by side", "[apart]") {
    const Buffer<int> in(std::vector<int>{1, 2, 3, 4});
    const Buffer<int> out(blocks * 4);
    CHECK(outcome_of(2, [&] { launch(each_its_own<int>, blocks, 4, 0, out.data(), in.data()); }) ==
          "no fault");
    CHECK(runs == std::array<unsigned, blocks>{1, 1, 1, 1, 1, 1, 1, 1});
    CHECK(different_workers() == 2);
    CHECK(out.values()[13] == 3);

    // Four blocks, a word
    const Buffer<uint8_t> bytes(blocks);
    CHECK(outcome_of(2, [&] {
              launch(each_its_own<uint8_t>, blocks, 1, 0, bytes.data(), in.data());
          }) == "no fault");
    CHECK(runs == std::array<unsigned, blocks>{1, 1, 1, 1, 1, 1, 1, 1});
    CHECK(bytes.values() == std::vector<uint8_t>(blocks, 2));
}

TEST_CASE("a race of two blocks is the same for any number of workers", "[apart]") {
    const unsigned count = GENERATE(2u, blocks); // of two blocks each has a worker to itself
    const auto run = [&](int workers, std::vector<int>& end) {
        const Buffer<int> data(count * 4);
        const std::string outcome =
            outcome_of(workers, [&] { launch(next_ones, count, 4, 0, data.data()); });
        end = data.values();
        return outcome;
    };
    std::vector<int> end, other_end;
    const std::string alone = run(1, end);
    CHECK(alone.starts_with("race: two threads"));
    for (const int workers : {2, 5}) {
        CAPTURE(workers, count);
        CHECK(run(workers, other_end) == alone);
        CHECK(other_end == end);
    }
}

TEST_CASE("a race for a byte is the same for two workers", "[apart]") {
    const auto run = [](int workers) {
        const Buffer<uint8_t> bytes(8);
        return outcome_of(workers, [&] { launch(one_byte, 2, 1, 0, bytes.data()); });
    };
    const std::string together = run(2);
    CHECK(together.starts_with("race: two threads, at byte 5 of data"));
    CHECK(run(1) == together);
}

TEST_CASE("a fault of one block is the same for any number of workers", "[apart]") {
    const auto run = [&](int workers, std::vector<int>& end) {
        const Buffer<int> in(std::vector<int>{1, 2, 3, 4}), out(blocks);
        const std::string outcome =
            outcome_of(workers, [&] { launch(read_beyond, blocks, 4, 0, out.data(), in.data()); });
        end = out.values();
        return outcome;
    };
    std::vector<int> end, other_end;
    const std::string alone = run(1, end);
    CHECK(alone.starts_with("out of bounds"));
    CHECK(runs == std::array<unsigned, blocks>{1, 1, 1, 1, 0, 0, 0, 0});
    CHECK(run(3, other_end) == alone);
    CHECK(other_end == end);
}

TEST_CASE("what blocks do to each other they do once, and in their order", "[apart]") {
    for (const int workers : {1, 2, 4}) {
        CAPTURE(workers);
        const Buffer<int> total(1), tickets(blocks);
        for (int turn = 1; turn <= 2; ++turn) { // the second time nobody tries
            CHECK(outcome_of(workers, [&] {
                      launch(count, blocks, 4, 0, total.data(), tickets.data());
                  }) == "no fault");
            CHECK(total.values()[0] == turn * static_cast<int>(blocks));
            CHECK(tickets.values()[5] == 5 + (turn - 1) * static_cast<int>(blocks));
        }
        const Buffer<char> word(std::vector<char>{'h', 'i', 0});
        CHECK(printed_by([&] {
                  outcome_of(workers, [&] { launch(say, blocks, 4, 0, word.data()); });
              }) == "hi 0\nhi 1\nhi 2\nhi 3\nhi 4\nhi 5\nhi 6\nhi 7\n");
        const Buffer<int> out(blocks);
        CHECK(outcome_of(workers, [&] { launch(with_heap, blocks, 4, 0, out.data()); }) ==
              "no fault");
        CHECK(out.values()[6] == 7);
    }
}
