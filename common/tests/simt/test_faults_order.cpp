// Kernels whose threads are not ordered as they must be, or wait for what never comes.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

int line(const char* tag) { return line_of(__FILE__, tag); }

template <bool Barrier> __global__ void reverse_block(float* data) {
    __shared__ float tile[64];
    tile[threadIdx.x] = data[threadIdx.x]; // write of tile
    if (Barrier) {
        __syncthreads(); // all of the tile is written before any of it is read
    }
    data[threadIdx.x] = tile[63 - threadIdx.x]; // read of tile
}

__global__ void write_after_read(float* data) {
    __shared__ float tile[64];
    for (int round = 0; round < 2; ++round) {
        tile[threadIdx.x] = data[threadIdx.x]; // next round's write
        __syncthreads(); // all of the tile is written; but nothing waits for the reads
        data[threadIdx.x] = tile[63 - threadIdx.x]; // this round's read
    }
}

__global__ void read_at_two_lines(float* out) {
    __shared__ float total[1];
    if (threadIdx.x == 0) {
        total[threadIdx.x] = 0;
    }
    __syncthreads(); // the total is zero
    if (threadIdx.x >= 16 && threadIdx.x < 32) {
        out[threadIdx.x] = total[threadIdx.x / 64]; // upper lanes read
    }
    __shfl_sync(0xffffffffu, 0, 0); // the lower lanes come after the upper ones
    if (threadIdx.x < 16) {
        out[threadIdx.x] = total[threadIdx.x / 64]; // lower lanes read
    }
    if (threadIdx.x == 40) {
        total[threadIdx.x / 64] = 1; // written meanwhile
    }
}

__global__ void same_word(float* out) {
    __shared__ float total[2];
    total[threadIdx.x / 32] = static_cast<float>(threadIdx.x); // all lanes write one word
    __syncthreads();
    out[threadIdx.x] = total[threadIdx.x / 32];
}

/// Each thread reads the elements of three neighbours; one thread writes one of them meanwhile.
template <bool shared>
__global__ void read_neighbours(float* data, float* out, unsigned writer, unsigned element) {
    __shared__ float tile[64];
    float* const from = shared ? tile : data;
    from[threadIdx.x] = 1;
    __syncthreads(); // all elements are written
    for (unsigned shift = 1; shift <= 3; ++shift) {
        out[threadIdx.x] += from[(threadIdx.x + shift) % 64]; // a neighbour's
    }
    if (threadIdx.x == writer) {
        from[element] = 2; // while the neighbours read
    }
}

template <bool Sync> __global__ void neighbours(float* data) {
    __shared__ float tile[32];
    tile[threadIdx.x] = data[threadIdx.x]; // write by a lane
    if (Sync) {
        __syncwarp(); // each lane's element is written before its neighbour reads it
    }
    data[threadIdx.x] = tile[threadIdx.x ^ 1]; // read by its neighbour
}

template <bool Sync> __global__ void one_for_all(float* data) {
    __shared__ float one[1];
    if (threadIdx.x == 0) {
        one[threadIdx.x] = data[threadIdx.x]; // write for all lanes
    }
    if (Sync) {
        __syncwarp(); // the value is there before others read it
    }
    data[threadIdx.x] = one[threadIdx.x / 32]; // read by all lanes, the writer first
}

__global__ void halves(unsigned short* out) {
    __shared__ unsigned short tile[64];
    // two threads, one word, different halves
    tile[threadIdx.x] = static_cast<unsigned short>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void sum_blocks(float* sum) {
    sum[0] = sum[0] + 1; // sum of blocks
}

/// A lane reads two places at one line, and the second is wrong: another lane has written it, or
/// writes it next, or it is no multiple of 16. `places` is 2; a constant would make two loads of
/// one.
__global__ void read_after_write(float* data, float* out, int places) {
    if (threadIdx.x == 0) {
        data[1] = 1;
    } else if (threadIdx.x == 1) {
        for (int i = 0; i < places; ++i) {
            out[i] = data[i];
        }
    }
}
__global__ void read_before_write(float* data, float* out, int places) {
    for (int i = 0; i < places; ++i) {
        if (threadIdx.x == 1) {
            out[i] = data[i];
        } else if (threadIdx.x == 0 && i == 1) {
            data[1] = 1;
        }
        if (i == 0) {
            __syncwarp();
        }
    }
}
__global__ void read_across(const float* data, float* out, int places) {
    float sum = 0;
    for (int i = 0; i < places; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(data + 5 * i);
        sum += four.w;
    }
    out[0] = sum;
}

/// Lanes read a cell or not by its bits: so many pasts that the detector begins to forget. Then the
/// first and the last block meet.
__global__ void many_pasts(float* data, unsigned cells, float* met) {
    float sum = 0;
    for (unsigned i = 0; i < cells; ++i) {
        if ((i * 0x9e3779b1u >> threadIdx.x & 1) != 0) {
            sum += data[i];
        }
    }
    if (threadIdx.x == 0 && blockIdx.x % 2 == 0) {
        *met = sum + static_cast<float>(blockIdx.x); // met
    }
}

__global__ void sum_blocks_atomically(float* sum) { atomicAdd(sum, 1.0f); }

__global__ void read_of_other_block(float* data) {
    if (blockIdx.x == 0) {
        data[threadIdx.x + 32] = data[threadIdx.x]; // first block's read
    } else {
        data[threadIdx.x] = 0; // second block's write
    }
}

template <bool Store> __global__ void atomic_and_plain(int* sum, unsigned thread) {
    atomicAdd(sum, 1); // atomic
    if (threadIdx.x == thread && Store) {
        sum[0] = 0; // plain store
    } else if (threadIdx.x == thread) {
        sum[1] = sum[0]; // plain load
    }
}

template <bool Synced> __global__ void pass_global(float* data) {
    data[threadIdx.x] = 1; // global write
    if (Synced) {
        __syncthreads(); // orders global memory within the block too
    }
    data[64 + threadIdx.x] = data[63 - threadIdx.x]; // global read
}

__global__ void divergent(float* out) {
    if (threadIdx.x < 32) {
        __syncthreads(); // first barrier
    } else {
        __syncthreads(); // second barrier
    }
    out[threadIdx.x] = 1;
}

__global__ void early_return(float* out, int size) {
    if (static_cast<int>(threadIdx.x) >= size) {
        return;
    }
    __syncthreads(); // never complete
    out[threadIdx.x] = 1;
}

__global__ void divergent_shuffle(int* out) {
    int value = 1;
    if (threadIdx.x % 2 == 0) {
        value = __shfl_xor_sync(0xffffffffu, value, 2); // even lanes
    } else {
        value = __shfl_xor_sync(0xffffffffu, value, 2); // odd lanes
    }
    out[threadIdx.x] = value;
}

__global__ void wrong_mask(int* out) {
    out[threadIdx.x] = __shfl_sync(0xffffu, 1, 0); // lane not named
}

} // namespace

TEST_CASE("a missing barrier is a race, in every schedule") {
    const Buffer<float> data(64);
    for (const simt::Schedule& schedule : schedules()) {
        CAPTURE(simt::to_string(schedule));
        const With watched({.schedule = schedule, .detect = true});
        const Fault fault = fault_of([&] { launch(reverse_block<false>, 1, 64, 0, data.data()); });
        CHECK(fault.kind == FaultKind::race);
        check_lines(fault, "read of tile", "write of tile");
        CHECK(fault.where.thread.x + fault.other.thread.x == 63);
        launch(reverse_block<true>, 1, 64, 0, data.data());
    }
}

TEST_CASE("a tile overwritten while others read it is a race") {
    const With watched({.detect = true});
    const Buffer<float> data(64);
    const Fault fault = fault_of([&] { launch(write_after_read, 1, 64, 0, data.data()); });
    CHECK(fault.kind == FaultKind::race);
    CHECK_THAT(fault.kernel, ContainsSubstring("write_after_read"));
    check_lines(fault, "next round's write", "this round's read");
    CHECK_THAT(fault.what(), ContainsSubstring("__syncthreads()"));
}

TEST_CASE("a race names the line at which the thread that it names was") {
    const With watched({.detect = true});
    const Buffer<float> out(64);
    const Fault fault = fault_of([&] { launch(read_at_two_lines, 1, 64, 0, out.data()); });
    CHECK(fault.where.line.line == line("written meanwhile"));
    CHECK(fault.other.thread.x < 32);
    CHECK(fault.other.line.line ==
          line(fault.other.thread.x < 16 ? "lower lanes read" : "upper lanes read"));
}

TEST_CASE("a race names threads that have met, whatever their neighbours did alike") {
    const Buffer<float> data(64), out(64);
    for (const simt::Schedule& schedule : schedules()) {
        const With watched({.schedule = schedule, .detect = true});
        for (const unsigned element : {0u, 1u, 2u, 5u, 31u, 32u, 33u, 40u, 63u}) {
            for (const bool shared : {true, false}) {
                CAPTURE(simt::to_string(schedule), element, shared);
                const unsigned writer = element * 7 % 64;
                const Fault fault = fault_of([&] {
                    launch(shared ? read_neighbours<true> : read_neighbours<false>, 1, 64, 0,
                           data.data(), out.data(), writer, element);
                });
                CHECK(fault.kind == FaultKind::race);
                const bool reads_first = fault.where.line.line == line("while the neighbours read");
                const unsigned reader = (reads_first ? fault.other : fault.where).thread.x;
                CHECK((reads_first ? fault.where : fault.other).thread.x == writer);
                CHECK(reader != writer);
                CHECK((element + 64 - reader) % 64 >= 1);
                CHECK((element + 64 - reader) % 64 <= 3);
            }
        }
    }
}

TEST_CASE("two writes of one word are a race") {
    const With watched({.detect = true});
    const Buffer<float> out(64);
    const Fault fault = fault_at("all lanes write one word", FaultKind::race,
                                 [&] { launch(same_word, 1, 64, 0, out.data()); });
    CHECK(fault.where.thread.x == 1);
    CHECK(fault.other.thread.x == 0);
}

TEST_CASE("lanes of a warp race without __syncwarp") {
    const With watched({.detect = true});
    const Buffer<float> data(32);
    const Fault fault = fault_of([&] { launch(neighbours<false>, 1, 32, 0, data.data()); });
    CHECK(fault.kind == FaultKind::race);
    CHECK(fault.where.thread.x == (fault.other.thread.x ^ 1));
    CHECK_THAT(fault.what(), ContainsSubstring("__syncwarp()"));
    simt::options().schedule = {simt::Schedule::reverse, 0};
    CHECK_NOTHROW(launch(neighbours<true>, 1, 32, 0, data.data()));
}

TEST_CASE("that the writer has read its value does not let other lanes read it") {
    const With watched({.detect = true});
    const Buffer<float> data(32);
    const Fault fault = fault_at("read by all lanes, the writer first", FaultKind::race,
                                 [&] { launch(one_for_all<false>, 1, 32, 0, data.data()); });
    CHECK(fault.other.line.line == line("write for all lanes"));
    CHECK_NOTHROW(launch(one_for_all<true>, 1, 32, 0, data.data()));
}

TEST_CASE("the halves of a word are different places") {
    const With watched({.detect = true});
    const Buffer<unsigned short> out(64);
    CHECK_NOTHROW(launch(halves, 1, 64, 0, out.data()));
}

TEST_CASE("blocks race on global memory") {
    const With watched({.detect = true});
    const Buffer<float> sum(1);
    const Fault fault = fault_at("sum of blocks", FaultKind::race,
                                 [&] { launch(sum_blocks, 2, 1, 0, sum.data()); });
    CHECK(fault.where.block.x == 1);
    CHECK(fault.other.block.x == 0);
    CHECK(fault.other.line.line == line("sum of blocks"));
    CHECK_NOTHROW(launch(sum_blocks_atomically, 8, 64, 0, sum.data()));
    CHECK_NOTHROW(launch(sum_blocks, 1, 1, 0, sum.data())); // another launch comes after
}

TEST_CASE("a load is checked, although the same line has read another place") {
    in_every_way([] {
        const Buffer<float> out(2);
        const auto fault = [&](auto kernel, unsigned threads) {
            const Buffer<float> data(16);
            return fault_of([&] { launch(kernel, 1, threads, 0, data.data(), out.data(), 2); })
                .kind;
        };
        CHECK(fault(read_after_write, 32) == FaultKind::race);
        CHECK(fault(read_before_write, 32) == FaultKind::race);
        CHECK(fault(read_across, 1) == FaultKind::misaligned);
    });
}

TEST_CASE("blocks race on global memory after much else has been remembered") {
    const With watched({.detect = true});
    const Buffer<float> data(size_t{1} << 15), met(1);
    const Fault fault =
        fault_of([&] { launch(many_pasts, 3, 32, 0, data.data(), 1u << 15, met.data()); });
    CHECK(fault.kind == FaultKind::race);
    CHECK(fault.where.block.x == 2);
    CHECK(fault.other.block.x == 0);
    CHECK(fault.other.line.line == line("met"));
}

TEST_CASE("blocks race on global memory whichever comes first") {
    const Buffer<float> data(64);
    for (const simt::Schedule& schedule : schedules()) {
        const With watched({.schedule = schedule, .detect = true});
        const Fault fault = fault_of([&] { launch(read_of_other_block, 2, 32, 0, data.data()); });
        CHECK(fault.kind == FaultKind::race);
        CHECK(fault.where.block.x != fault.other.block.x);
        check_lines(fault, "first block's read", "second block's write");
    }
}

TEST_CASE("an atomic and a plain access race") {
    const Buffer<int> sum(2);
    for (const simt::Schedule& schedule : schedules()) {
        const With watched({.schedule = schedule, .detect = true});
        for (const unsigned thread : {0u, 40u, 63u}) {
            CAPTURE(simt::to_string(schedule), thread);
            const Fault store =
                fault_of([&] { launch(atomic_and_plain<true>, 1, 64, 0, sum.data(), thread); });
            CHECK(store.kind == FaultKind::race);
            check_lines(store, "plain store", "atomic");
            const Fault load =
                fault_of([&] { launch(atomic_and_plain<false>, 1, 64, 0, sum.data(), thread); });
            CHECK(load.kind == FaultKind::race);
            check_lines(load, "plain load", "atomic");
        }
    }
}

TEST_CASE("threads of a block race on global memory without a barrier") {
    const With watched({.detect = true});
    const Buffer<float> data(128);
    const Fault fault = fault_of([&] { launch(pass_global<false>, 1, 64, 0, data.data()); });
    CHECK(fault.kind == FaultKind::race);
    check_lines(fault, "global write", "global read");
    CHECK_NOTHROW(launch(pass_global<true>, 1, 64, 0, data.data()));
}

TEST_CASE("a divergent barrier names both lines") {
    const Buffer<float> out(64);
    for (const simt::Schedule& schedule : schedules()) {
        const With scheduled({.schedule = schedule});
        const Fault fault = fault_of([&] { launch(divergent, 1, 64, 0, out.data()); });
        CHECK(fault.kind == FaultKind::divergent_barrier);
        check_lines(fault, "first barrier", "second barrier");
        CHECK(fault.where.line.line != fault.other.line.line);
        CHECK((fault.where.thread.x < 32) == (fault.where.line.line == line("first barrier")));
    }
}

TEST_CASE("lanes that must meet at different places are reported") {
    const Buffer<int> out(32);
    const Fault fault = fault_at("odd lanes", FaultKind::divergent_barrier,
                                 [&] { launch(divergent_shuffle, 1, 32, 0, out.data()); });
    CHECK(fault.other.line.line == line("even lanes"));
    const Fault unnamed = fault_at("lane not named", FaultKind::divergent_barrier,
                                   [&] { launch(wrong_mask, 1, 32, 0, out.data()); });
    CHECK(unnamed.where.thread.x == 16);
}

TEST_CASE("after a fault the next launch works") {
    const Buffer<float> out(64);
    fault_of([&] { launch(divergent, 4, 64, 0, out.data()); });
    const Buffer<float> data(std::vector<float>(64, 3));
    launch(reverse_block<true>, 1, 64, 0, data.data());
    CHECK(data.values() == std::vector<float>(64, 3));
}

TEST_CASE("of several faulty blocks the first is reported") {
    const Buffer<float> out(64);
    const With strict({.strict = true});
    for (int repeat = 0; repeat < 20; ++repeat) {
        const Fault fault = fault_of([&] { launch(early_return, 100, 64, 0, out.data(), 50); });
        CHECK(fault.where.block.x == 0);
    }
}
