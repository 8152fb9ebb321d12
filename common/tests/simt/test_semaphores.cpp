// Blocks that take turns: each adds its numbers to a sum when those before it have. The same kernel
// with a step missing must be reported, and a block that waits for one that cannot begin must not
// wait for ever.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/cuda/ptx/semaphore.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

enum class Broken { nothing, wait, early_turn, bulk_wait, number, fails };
enum class Counts { orders, relaxed, acquires };

constexpr int terms = 64;

/// state[0] is the next number, state[1] whose turn it is. `last` is who came last, without an
/// atomic operation.
template <Broken broken> __global__ void turns(unsigned* state, float* sums, unsigned* last) {
    float* smem = dynamic_shared<float>();
    __shared__ unsigned number;
    if (threadIdx.x == 0) {
        number = broken == Broken::number ? blockIdx.x : atomicAdd(&state[0], 1);
    }
    __syncthreads(); // the number is there
    // no order gives the bits of another
    smem[threadIdx.x] = number % 2 == 0 ? 1e8f : static_cast<float>(number);
    fence_proxy_async();
    __syncthreads(); // the terms are complete
    if (threadIdx.x == 0) {
        if (broken == Broken::fails && number == 2) {
            last[1000000] = 0;
        }
        if (broken != Broken::wait) {
            // wait
            semaphore_wait(&state[1],
                           broken == Broken::early_turn && number > 0 ? number - 1 : number);
        }
        bulk_reduce_add(sums, smem, terms * 4); // add
        bulk_commit();
        if (broken == Broken::bulk_wait) {
            bulk_wait_read<0>();
        } else {
            bulk_wait<0>();
        }
        if (broken != Broken::wait) {
            *last = number;
        }
        semaphore_add(&state[1]); // turn
    }
}

/// Who comes last adds up what all have stored.
template <Counts counts> __global__ void last_adds(unsigned* finished, unsigned* parts) {
    parts[blockIdx.x] = blockIdx.x + 1; // store
    const unsigned before =
        counts == Counts::orders ? semaphore_fetch_add(finished) : atomicAdd(finished, 1);
    if constexpr (counts == Counts::acquires) {
        __threadfence();
    }
    if (before + 1 == gridDim.x) {
        unsigned sum = 0;
        for (unsigned n = 0; n < gridDim.x; ++n) {
            sum += parts[n]; // load
        }
        parts[0] = sum;
    }
}

constexpr unsigned blocks = 9;

template <Counts counts> unsigned sum_of_parts() {
    const Buffer<unsigned> finished(1), parts(blocks);
    launch(last_adds<counts>, blocks, 1, 0, finished.data(), parts.data());
    return parts.values()[0];
}

template <Broken broken> std::vector<float> run() {
    const Buffer<unsigned> state(2), last(1);
    const Buffer<float> sums(terms);
    launch(turns<broken>, blocks, terms, terms * 4, state.data(), sums.data(), last.data());
    CHECK(state.values() == std::vector{broken == Broken::number ? 0 : blocks, blocks});
    CHECK(last.values()[0] == blocks - 1);
    return sums.values();
}

} // namespace

TEST_CASE(
    "blocks that number themselves take turns in every schedule, and what they write is ordered",
    "[semaphore]") {
    float sum = 0;
    for (unsigned number = 0; number < blocks; ++number) {
        sum += number % 2 == 0 ? 1e8f : static_cast<float>(number);
    }
    in_every_way([&] { CHECK(run<Broken::nothing>() == std::vector(terms, sum)); });
    for (const int workers : {2, 5, 16}) { // at the same time
        const With chosen({.schedule = {simt::Schedule::shuffle, static_cast<uint64_t>(workers)},
                           .workers = workers});
        for (int again = 0; again < 20; ++again) {
            CHECK(run<Broken::nothing>() == std::vector(terms, sum));
        }
    }
}

TEST_CASE("a sum whose order no semaphore fixes is reported", "[semaphore]") {
    in_every_way([] {
        for (const Fault& fault :
             {fault_of(run<Broken::wait>), fault_of(run<Broken::early_turn>)}) {
            CHECK(fault.kind == FaultKind::race);
            CHECK_THAT(fault.what(),
                       ContainsSubstring("the order of a sum differs from run to run"));
            CHECK(fault.where.line.line == line_of(__FILE__, "add"));
            CHECK(fault.other.line.line == line_of(__FILE__, "add"));
        }
    });
}

TEST_CASE("the block that comes last by semaphore_fetch_add sees what all have stored",
          "[semaphore]") {
    in_every_way([] { CHECK(sum_of_parts<Counts::orders>() == blocks * (blocks + 1) / 2); });
    for (const int workers : {2, 5}) { // at the same time
        const With chosen({.workers = workers});
        CHECK(sum_of_parts<Counts::orders>() == blocks * (blocks + 1) / 2);
    }
}

TEST_CASE("the block that comes last by a count that does not order is reported", "[semaphore]") {
    in_every_way([] {
        for (const Fault& fault :
             {fault_of(sum_of_parts<Counts::relaxed>), fault_of(sum_of_parts<Counts::acquires>)}) {
            CHECK(fault.kind == FaultKind::race);
            CHECK(fault.where.line.line == line_of(__FILE__, "load"));
            CHECK(fault.other.line.line == line_of(__FILE__, "store"));
        }
    });
}

TEST_CASE("a turn that is passed on before TMA has written is reported", "[semaphore]") {
    in_every_way([] {
        const Fault fault = fault_of(run<Broken::bulk_wait>);
        CHECK(fault.kind == FaultKind::race);
        CHECK_THAT(fault.what(), ContainsSubstring("while TMA is still writing"));
        CHECK(fault.where.line.line == line_of(__FILE__, "turn"));
    });
}

TEST_CASE(
    "blocks that wait for blocks which cannot begin are a deadlock, on one worker and on several",
    "[semaphore]") {
    for (const int workers : {1, 2, 4}) {
        CAPTURE(workers);
        const With in_order({.workers = workers});
        run<Broken::number>(); // block 0 begins first
        const With reverse({.schedule = {simt::Schedule::reverse, 0}, .workers = workers});
        const Fault fault = fault_of(run<Broken::number>);
        CHECK(fault.kind == FaultKind::deadlock);
        CHECK_THAT(fault.what(), ContainsSubstring("1 of 64 threads wait in semaphore_wait"));
        CHECK_THAT(fault.what(),
                   ContainsSubstring("(it is 0, 8 is waited for, and no block that has begun"));
    }
}

TEST_CASE("a block that goes wrong is reported, and those that wait for it are let go",
          "[semaphore]") {
    for (const int workers : {1, 4}) {
        const With chosen({.workers = workers});
        CHECK(fault_of(run<Broken::fails>).kind == FaultKind::out_of_bounds);
    }
}
