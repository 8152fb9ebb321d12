// The detector with several workers: blocks that have nothing to do with each other run side by
// side, and all others as if there were one worker.
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <cstdio>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;

namespace {

constexpr unsigned blocks = 8;

// Of the kernel that ran last: how often each block has run, and on which OS thread.
std::array<unsigned, blocks> runs;
std::array<pthread_t, blocks> worker_of;

/// The calling thread's block has begun. Waits a moment for one of another worker.
[[gnu::no_sanitize_thread, gnu::noinline]] void sign_in(unsigned block, int looks = 200) {
    worker_of[block] = pthread_self();
    __atomic_fetch_add(&runs[block], 1, __ATOMIC_SEQ_CST);
    for (int look = 0; look < looks; ++look) {
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
        sign_in(blockIdx.x, 20);
        ticket[blockIdx.x] = atomicAdd(total, 1);
    }
}

__global__ void with_heap(int* out) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x, 20);
        int* const own = new int(static_cast<int>(blockIdx.x) + 1);
        out[blockIdx.x] = *own;
        delete own;
    }
}

__global__ void say(const char* word) {
    if (threadIdx.x == 0) {
        sign_in(blockIdx.x, 20);
        printf("%s %u\n", word, blockIdx.x);
    }
}

/// What a block does to its shared memory.
enum class Does {
    // no fault, and nothing to doubt
    meet,
    read_own,
    read_wide,
    // no fault, but more than barriers order it
    meet_in_warp,
    update,
    store_bytes,
    copy_async,
    // faults
    forget_barrier,
    overwrite_early,
    write_twice,
    read_fresh,
    read_of_last_block,
    overrun,
    overrun_wide,
};

template <Does does> __global__ void share(float* out) {
    __shared__ float tile[6];
    __shared__ float other[8];
    __shared__ int total;
    __shared__ char bytes[4];
    const unsigned t = threadIdx.x; // 0 to 3
    if (t == 0) {
        sign_in(blockIdx.x);
        total = 0;
    }
    other[t] = other[t + 4] = 1;
    if (does != Does::read_fresh && (does != Does::read_of_last_block || blockIdx.x == 0)) {
        tile[t] = static_cast<float>(t); // fill
    }
    if constexpr (does == Does::meet_in_warp) {
        __syncwarp();
    } else if (does != Does::forget_barrier) {
        __syncthreads();
    }
    float sum = tile[(t + (does == Does::read_own ? 0 : 1)) % 4]; // read
    if constexpr (does == Does::read_wide) {
        const float4 all = *reinterpret_cast<const float4*>(tile);
        sum = all.x + all.w;
    }
    if constexpr (does == Does::update) {
        atomicAdd(&total, 1);
        __syncthreads();
        sum += static_cast<float>(total);
    }
    if constexpr (does == Does::store_bytes) {
        bytes[t] = static_cast<char>(t);
        __syncthreads();
        sum += bytes[3 - t];
    }
    if constexpr (does == Does::copy_async) {
        if (t == 0) {
            flash::cp_async_16(other, out + 4 * blockIdx.x, true);
        }
        flash::cp_async_commit();
        flash::cp_async_wait<0>();
        __syncthreads();
        sum += other[3 - t];
    }
    if constexpr (does == Does::overwrite_early) {
        if (t == 3) {
            tile[1] = 7; // that thread 0 reads
        }
    }
    __syncthreads();
    tile[t] = 2; // fill
    if constexpr (does == Does::write_twice) {
        tile[t / 2] = static_cast<float>(t); // twice
    }
    if constexpr (does == Does::overrun) {
        tile[t + 4] = 3; // beyond, into the gap behind it
    }
    if constexpr (does == Does::overrun_wide) {
        __syncthreads();
        const float4 all = *reinterpret_cast<const float4*>(&tile[4]); // beyond
        sum += all.x;
    }
    out[4 * blockIdx.x + t] = sum;
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

namespace {

template <Does does> std::string outcome_of_sharing(int workers) {
    const Buffer<float> out(std::vector<float>(4 * blocks, 0));
    return outcome_of(workers, [&] { launch(share<does>, blocks, 4, 0, out.data()); });
}

unsigned most_runs() { return *std::ranges::max_element(runs); }

} // namespace

TEMPLATE_TEST_CASE_SIG("shared memory that barriers order passes a quick check", "[quick]",
                       ((Does does), does), Does::meet, Does::read_own, Does::read_wide) {
    CHECK(outcome_of_sharing<does>(2) == "no fault");
    CHECK(most_runs() == 1);
    CHECK(different_workers() == 2);
}

TEMPLATE_TEST_CASE_SIG("what a quick check doubts is watched once more, and is no fault", "[quick]",
                       ((Does does), does), Does::meet_in_warp, Does::update, Does::store_bytes,
                       Does::copy_async) {
    CHECK(outcome_of_sharing<does>(2) == "no fault");
    CHECK(most_runs() == 2);
    CHECK(different_workers() == 2);
    CHECK(outcome_of_sharing<does>(2) == "no fault");
    CHECK(most_runs() == 1); // nobody tries again
    CHECK(different_workers() == 2);
}

TEMPLATE_TEST_CASE_SIG("a quick check passes no fault", "[quick]", ((Does does), does),
                       Does::forget_barrier, Does::overwrite_early, Does::write_twice,
                       Does::read_fresh, Does::read_of_last_block, Does::overrun,
                       Does::overrun_wide) {
    const std::string alone = outcome_of_sharing<does>(1);
    CHECK(alone != "no fault");
    CAPTURE(alone);
    CHECK(outcome_of_sharing<does>(2) == alone);
    CHECK(outcome_of_sharing<does>(2) == alone);
}
