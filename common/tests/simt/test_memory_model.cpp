// What orders threads besides barriers: fences with flags, locks and counters, by their scopes; and
// threads and blocks that wait for each other in this way.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/simt/instructions/warp.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

enum class Fence { none, block, device };

template <Fence fence> __device__ void fence_by() {
    if (fence == Fence::block) {
        __threadfence_block();
    } else if (fence == Fence::device) {
        __threadfence();
    }
}

/// Thread `writer` hands a number to thread `reader`; threads are counted over all blocks.
template <Fence before, Fence after, class Data, class Flag>
__global__ void hand_over(Data* data, Flag* flag, int* out, unsigned writer, unsigned reader) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread == writer) {
        data[0] = 7; // written
        fence_by<before>();
        flag[0] = 1; // flag set
    } else if (thread == reader) {
        while (flag[0] == 0) { // flag read
        }
        fence_by<after>();
        out[0] = data[0]; // read
    }
}

/// The same with an atomic flag.
enum class By { device, block };
template <Fence before, Fence after, By by, class Data>
__global__ void hand_over_atomically(Data* data, int* flag, int* out, unsigned writer,
                                     unsigned reader) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread == writer) {
        data[0] = 7; // written before
        fence_by<before>();
        if (by == By::block) {
            atomicExch_block(flag, 1);
        } else {
            atomicExch(flag, 1);
        }
    } else if (thread == reader) {
        while ((by == By::block ? atomicAdd_block(flag, 0) : atomicAdd(flag, 0)) == 0) {
        }
        fence_by<after>();
        out[0] = data[0]; // read after
    }
}

/// Each thread adds to a sum under a lock.
template <Fence after_lock, Fence before_unlock, class Sum>
__global__ void add_under_lock(Sum* sum, int* lock) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    fence_by<after_lock>();
    sum[0] = sum[0] + 1; // under the lock
    fence_by<before_unlock>();
    atomicExch(lock, 0);
}

/// The last block adds what all have written.
template <Fence before, Fence after>
__global__ void sum_by_last_block(int* parts, unsigned* count, int* out) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = static_cast<int>(blockIdx.x); // a part
        fence_by<before>();
        is_last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
        fence_by<after>();
    }
    __syncthreads(); // all know who is last
    if (is_last && threadIdx.x == 1) {
        int sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) {
            sum += parts[i]; // of the last block
        }
        out[0] = sum;
    }
}

/// All threads of a block write, fence and meet before one of them counts.
__global__ void sum_by_last_block_of_many(int* parts, unsigned* count, int* out) {
    __shared__ bool is_last;
    parts[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    __threadfence();
    __syncthreads(); // all parts of the block are there
    if (threadIdx.x == 0) {
        is_last = atomicAdd(count, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads(); // all know who is last
    if (is_last) {
        for (unsigned i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) {
            atomicAdd(out, parts[i]);
        }
    }
}

template <bool of_block> __global__ void count_blocks(int* count) {
    if (of_block) {
        atomicAdd_block(count, 1); // counted
    } else {
        atomicAdd_system(count, 1);
    }
}

/// The same block by both.
__global__ void count_narrow_and_wide(int* count, bool with_barrier) {
    if (threadIdx.x == 0) {
        atomicAdd_block(count, 1); // for its block
    }
    if (with_barrier) {
        __syncthreads();
    }
    if (threadIdx.x == 32) {
        atomicAdd(count, 1); // for all
    }
}

template <class T> __global__ void use_all_atomics(T* values) {
    atomicAdd_block(values, T(1));
    atomicExch_system(values + 1, T(2));
    atomicCAS_block(values + 2, T(0), T(3));
    atomicMin_system(values + 3, T(0));
    atomicMax_block(values + 4, T(5));
    atomicInc_block(values + 5, T(9));
    atomicDec_system(values + 6, T(9));
    atomicOr_block(values + 7, T(8));
}

__global__ void add_floats(float* floats, double* doubles) {
    atomicAdd_block(floats, 1.5f);
    atomicAdd_system(doubles, 2.5);
    atomicExch(floats + 1, 3.0f);
}

/// Neighbours in a warp exchange turns.
__global__ void take_turns_in_a_warp(volatile int* turn, int* order, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        const int own = round * 32 + static_cast<int>(threadIdx.x);
        while (turn[0] != own) {
        }
        __threadfence_block();
        order[own] = own;
        __threadfence_block();
        turn[0] = own + 1;
    }
}

/// A sense-reversing barrier of all blocks, as programs write it.
__global__ void own_grid_barrier(unsigned* arrived, volatile unsigned* phase, int* data,
                                 int* too_early, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x == 0) {
            data[gridDim.x * round + blockIdx.x] = 1;
        }
        __syncthreads(); // the block has done its part
        if (threadIdx.x == 0) {
            const unsigned own = *phase;
            __threadfence();
            if (atomicAdd(arrived, 1) == gridDim.x - 1) {
                *arrived = 0;
                __threadfence();
                *phase = own + 1;
            } else {
                while (*phase == own) {
                }
            }
            __threadfence();
        }
        __syncthreads(); // all blocks have done their parts
        if (threadIdx.x == 0 && data[gridDim.x * round + (blockIdx.x + 1) % gridDim.x] == 0) {
            atomicAdd(too_early, 1);
        }
    }
}

template <bool synced> __global__ void shift_over_grid(int* data, int* out) {
    data[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(blockIdx.x); // before all met
    if (synced) {
        simt::sync_grid();
    }
    const unsigned other = (blockIdx.x + 1) % gridDim.x;
    out[blockIdx.x * blockDim.x + threadIdx.x] = data[other * blockDim.x + threadIdx.x]; // after
}

__global__ void wait_for_ever(int* flag) {
    while (atomicAdd(flag, 0) == 0) { // for ever
    }
}

__global__ void wait_for_last_block(int* flag) {
    if (blockIdx.x == gridDim.x - 1) {
        atomicExch(flag, 1);
    }
    while (atomicAdd(flag, 0) == 0) { // for the last block
    }
}

__global__ void two_barriers_on_a_line(int* out) {
    // clang-format off
    if (threadIdx.x < 32) { __syncthreads(); } else { __syncthreads(); } // two of them
    // clang-format on
    out[threadIdx.x] = 1;
}

__global__ void leave_early(int* out, unsigned size) {
    if (threadIdx.x >= size) {
        return;
    }
    out[threadIdx.x] = __syncthreads_count(threadIdx.x % 2 == 0); // others have left
}

__global__ void vote_in_block(int* out) {
    out[threadIdx.x] = __syncthreads_and(threadIdx.x < 64) + 2 * __syncthreads_and(1) +
                       4 * __syncthreads_or(0) + 8 * __syncthreads_count(threadIdx.x < 9);
}

__global__ void active_lanes(unsigned* out) {
    if (threadIdx.x % 3 == 0) {
        out[threadIdx.x] = __activemask();
    } else {
        out[threadIdx.x] = __activemask();
    }
}

__global__ void warp_sum_by_volatile(volatile int* data) {
    data[threadIdx.x] = data[threadIdx.x] + data[threadIdx.x + 16]; // old style
    data[threadIdx.x] = data[threadIdx.x] + data[threadIdx.x + 8];
}

enum class Verdict { clean, warning, fault };

/// In order and reversed, and with other schedules: no fault and no warning, a warning of that
/// kind, or a fault of that kind.
template <class Launch> void check_verdict(Verdict verdict, FaultKind kind, Launch launch_once) {
    for (const simt::Schedule& schedule : schedules()) {
        CAPTURE(simt::to_string(schedule));
        const With watched({.schedule = schedule, .detect = true});
        if (verdict == Verdict::fault) {
            const Fault fault = fault_of(launch_once);
            CAPTURE(fault.what());
            CHECK(fault.kind == kind);
            continue;
        }
        CHECK_NOTHROW(launch_once());
        simt::options().strict = true;
        if (verdict == Verdict::clean) {
            CHECK_NOTHROW(launch_once());
        } else {
            const Fault warning = fault_of(launch_once);
            CAPTURE(warning.what());
            CHECK(warning.kind == kind);
        }
    }
}

constexpr FaultKind none = FaultKind::launch;

template <Fence before, Fence after, class Data, class Flag>
void hand_over_once(unsigned blocks, unsigned threads) {
    const Buffer<int> data(1), flag(1), out(1);
    launch(hand_over<before, after, Data, Flag>, blocks, threads, 0,
           static_cast<Data*>(data.data()), static_cast<Flag*>(flag.data()), out.data(), 0u,
           blocks * threads - 1);
    CHECK(out.values()[0] == 7);
}

template <Fence before, Fence after, By by, class Data>
void hand_over_atomically_once(unsigned blocks, unsigned threads) {
    const Buffer<int> data(1), flag(1), out(1);
    launch(hand_over_atomically<before, after, by, Data>, blocks, threads, 0,
           static_cast<Data*>(data.data()), flag.data(), out.data(), 0u, blocks * threads - 1);
    CHECK(out.values()[0] == 7);
}

template <Fence after_lock, Fence before_unlock, class Sum> void add_once() {
    const Buffer<int> sum(1), lock(1);
    launch(add_under_lock<after_lock, before_unlock, Sum>, 4, 33, 0, static_cast<Sum*>(sum.data()),
           lock.data());
    CHECK(sum.values()[0] == 4 * 33);
}

template <Fence before, Fence after> void sum_once() {
    const Buffer<int> parts(9), out(1);
    const Buffer<unsigned> count(1);
    launch(sum_by_last_block<before, after>, 9, 32, 0, parts.data(), count.data(), out.data());
    CHECK(out.values()[0] == 36);
}

} // namespace

TEST_CASE("a flag with fences on both sides is an order, by its scope", "[model]") {
    using Flag = volatile int;
    check_verdict(Verdict::clean, none,
                  [] { hand_over_once<Fence::device, Fence::device, int, Flag>(2, 1); });
    check_verdict(Verdict::clean, none,
                  [] { hand_over_once<Fence::block, Fence::block, int, Flag>(1, 33); });
    check_verdict(Verdict::clean, none,
                  [] { hand_over_once<Fence::block, Fence::block, int, Flag>(1, 2); });
    check_verdict(Verdict::fault, FaultKind::race,
                  [] { hand_over_once<Fence::none, Fence::device, int, Flag>(2, 1); });
    check_verdict(Verdict::fault, FaultKind::race,
                  [] { hand_over_once<Fence::block, Fence::device, int, Flag>(2, 1); });
    check_verdict(Verdict::fault, FaultKind::race,
                  [] { hand_over_once<Fence::none, Fence::none, int, Flag>(1, 33); });
}

TEST_CASE("a fence of the one who writes alone is a warning", "[model]") {
    check_verdict(Verdict::warning, FaultKind::missing_acquire, [] {
        hand_over_atomically_once<Fence::device, Fence::none, By::device, int>(2, 1);
    });
    check_verdict(Verdict::warning, FaultKind::missing_acquire, [] {
        hand_over_atomically_once<Fence::device, Fence::block, By::device, int>(2, 1);
    });
    check_verdict(Verdict::warning, FaultKind::missing_acquire,
                  [] { sum_once<Fence::device, Fence::none>(); });
}

TEST_CASE("an atomic flag with fences is an order, by the scopes of both", "[model]") {
    check_verdict(Verdict::clean, none, [] {
        hand_over_atomically_once<Fence::device, Fence::device, By::device, int>(2, 1);
    });
    check_verdict(Verdict::clean, none, [] {
        hand_over_atomically_once<Fence::block, Fence::block, By::block, int>(1, 33);
    });
    check_verdict(Verdict::fault, FaultKind::race, [] {
        hand_over_atomically_once<Fence::none, Fence::device, By::device, int>(2, 1);
    });
    check_verdict(Verdict::fault, FaultKind::race, [] {
        hand_over_atomically_once<Fence::block, Fence::device, By::device, int>(2, 1);
    });
    check_verdict(Verdict::fault, FaultKind::race, [] {
        hand_over_atomically_once<Fence::device, Fence::device, By::block, int>(2, 1);
    });
}

TEST_CASE("volatile data that nothing orders are a warning", "[model]") {
    using Data = volatile int;
    check_verdict(Verdict::clean, none, [] {
        hand_over_atomically_once<Fence::device, Fence::device, By::device, Data>(2, 1);
    });
    check_verdict(Verdict::warning, FaultKind::volatile_conflict, [] {
        hand_over_atomically_once<Fence::none, Fence::none, By::device, Data>(2, 1);
    });
    check_verdict(Verdict::warning, FaultKind::volatile_conflict, [] {
        hand_over_atomically_once<Fence::block, Fence::none, By::device, Data>(2, 1);
    });
    check_verdict(Verdict::warning, FaultKind::volatile_conflict,
                  [] { add_once<Fence::none, Fence::none, Data>(); });
    check_verdict(Verdict::clean, none, [] { add_once<Fence::device, Fence::device, Data>(); });
}

TEST_CASE("volatile data that lanes of one warp hand over are a race", "[model]") {
    for (const simt::Schedule& schedule : schedules()) {
        CAPTURE(simt::to_string(schedule));
        const With watched({.schedule = schedule, .detect = true, .strict = true});
        const Fault fault = fault_of([] {
            const Buffer<int> data(std::vector<int>(64, 1));
            launch(warp_sum_by_volatile, 1, 32, 0, static_cast<volatile int*>(data.data()));
        });
        // in other orders a lane finds in global memory what was written: it may have waited
        const bool may_wait = schedule.kind != simt::Schedule::in_order;
        CHECK((fault.kind == FaultKind::race ||
               (may_wait && fault.kind == FaultKind::volatile_conflict)));
    }
}

TEST_CASE("a lock with fences is an order, and without them it is none", "[model]") {
    check_verdict(Verdict::clean, none, [] { add_once<Fence::device, Fence::device, int>(); });
    check_verdict(Verdict::fault, FaultKind::race,
                  [] { add_once<Fence::device, Fence::none, int>(); });
    check_verdict(Verdict::fault, FaultKind::race,
                  [] { add_once<Fence::none, Fence::none, int>(); });
    check_verdict(Verdict::fault, FaultKind::race,
                  [] { add_once<Fence::device, Fence::block, int>(); });
}

TEST_CASE("the last block may use what all have written before their fences", "[model]") {
    check_verdict(Verdict::clean, none, [] { sum_once<Fence::device, Fence::device>(); });
    check_verdict(Verdict::fault, FaultKind::race, [] { sum_once<Fence::none, Fence::device>(); });
    check_verdict(Verdict::fault, FaultKind::race, [] { sum_once<Fence::block, Fence::device>(); });
    check_verdict(Verdict::clean, none, [] {
        const Buffer<int> parts(9 * 64), out(1);
        const Buffer<unsigned> count(1);
        launch(sum_by_last_block_of_many, 9, 64, 0, parts.data(), count.data(), out.data());
        CHECK(out.values()[0] == 9 * 64);
    });
}

TEST_CASE("atomic operations of a block are not atomic for others", "[model]") {
    const auto count = [](auto kernel, unsigned blocks) {
        const Buffer<int> number(1);
        launch(kernel, blocks, 32, 0, number.data());
        CHECK(number.values()[0] == static_cast<int>(blocks) * 32);
    };
    check_verdict(Verdict::clean, none, [&] { count(count_blocks<true>, 1); });
    check_verdict(Verdict::clean, none, [&] { count(count_blocks<false>, 5); });
    check_verdict(Verdict::fault, FaultKind::race, [&] { count(count_blocks<true>, 2); });
}

TEST_CASE("a wider atomic operation does not stand for one of a block", "[model]") {
    for (const bool with_barrier : {true, false}) {
        const auto count = [&](unsigned blocks) {
            const Buffer<int> number(1);
            launch(count_narrow_and_wide, blocks, 64, 0, number.data(), with_barrier);
        };
        CAPTURE(with_barrier);
        check_verdict(Verdict::clean, none, [&] { count(1); });
        check_verdict(Verdict::fault, FaultKind::race, [&] { count(2); });
    }
}

TEST_CASE("atomic operations of every scope", "[model]") {
    const auto use = [](auto zero) {
        using T = decltype(zero);
        const Buffer<T> values(std::vector<T>{1, 1, 0, 7, 1, 9, 0, 1});
        launch(use_all_atomics<T>, 1, 1, 0, values.data());
        CHECK(values.values() == std::vector<T>{2, 2, 3, 0, 5, 0, 9, 9});
    };
    use(0);
    use(0u);
    use(0ull);
    const Buffer<float> floats(2);
    const Buffer<double> doubles(1);
    launch(add_floats, 1, 4, 0, floats.data(), doubles.data());
    CHECK(floats.values() == std::vector<float>{6, 3});
    CHECK(doubles.values()[0] == 10);
}

TEST_CASE("threads and blocks that spin give way, on any number of workers", "[model]") {
    for (const simt::Schedule& schedule : schedules()) {
        for (const bool detect : {false, true}) {
            for (const int workers : {1, 2, 5}) {
                const With chosen({.schedule = schedule, .detect = detect, .workers = workers});
                CAPTURE(simt::to_string(schedule), detect, workers);
                const Buffer<int> turn(1), order(96);
                launch(take_turns_in_a_warp, 1, 32, 0, static_cast<volatile int*>(turn.data()),
                       order.data(), 3);
                CHECK(turn.values()[0] == 96);

                const Buffer<unsigned> arrived(1), phase(1);
                const Buffer<int> data(60), too_early(1);
                launch(own_grid_barrier, 20, 64, 0, arrived.data(),
                       static_cast<volatile unsigned*>(phase.data()), data.data(), too_early.data(),
                       3);
                CHECK(too_early.values()[0] == 0);

                const Buffer<int> flag(1), other_flag(1);
                launch(wait_for_last_block, 128, 8, 0, flag.data());
                launch(hand_over<Fence::device, Fence::device, int, volatile int>, 3, 64, 0,
                       data.data(), static_cast<volatile int*>(other_flag.data()), data.data() + 1,
                       191u, 0u);
            }
        }
    }
}

TEST_CASE("who waits for ever is told where", "[model]") {
    for (const int workers : {1, 3}) { // blocks take turns, or each has a worker
        simt::Options chosen;
        chosen.workers = workers;
        chosen.timeout = 2;
        const With limited(chosen);
        const Buffer<int> flag(1);
        const Fault fault =
            fault_at("for ever", workers == 1 ? FaultKind::deadlock : FaultKind::timeout,
                     [&] { launch(wait_for_ever, 2, 32, 0, flag.data()); });
        CHECK_THAT(fault.what(),
                   ContainsSubstring(workers == 1 ? "32 of 32 threads wait for a value to "
                                                    "change at "
                                                  : "no progress for 2 seconds"));
    }
    // 4 SMs hold 32 blocks each
    const Buffer<int> flag(1);
    fault_at("for the last block", FaultKind::deadlock,
             [&] { launch(wait_for_last_block, 129, 8, 0, flag.data()); });
}

TEST_CASE("all threads of a grid meet", "[model]") {
    const auto shift = [](auto kernel, unsigned blocks) {
        const Buffer<int> data(blocks * 64), out(blocks * 64);
        launch(kernel, blocks, 64, 0, data.data(), out.data());
        for (unsigned i = 0; i < blocks * 64; ++i) {
            REQUIRE(out.values()[i] == static_cast<int>((i / 64 + 1) % blocks));
        }
    };
    for (const int workers : {1, 4}) {
        const With chosen({.workers = workers});
        shift(shift_over_grid<true>, 30);
    }
    check_verdict(Verdict::clean, none, [&] { shift(shift_over_grid<true>, 7); });
    check_verdict(Verdict::fault, FaultKind::race, [&] { shift(shift_over_grid<false>, 7); });
    CHECK(fault_of([&] { shift(shift_over_grid<true>, 129); }).kind == FaultKind::deadlock);
}

TEST_CASE("two barriers on one line are told apart", "[model]") {
    const Buffer<int> out(64);
    const Fault fault = fault_at("two of them", FaultKind::divergent_barrier,
                                 [&] { launch(two_barriers_on_a_line, 1, 64, 0, out.data()); });
    CHECK_THAT(fault.what(), ContainsSubstring("at different barriers of one line"));
}

TEST_CASE("threads that have left are not waited for", "[model]") {
    check_verdict(Verdict::warning, FaultKind::early_exit, [] {
        const Buffer<int> out(64);
        launch(leave_early, 1, 64, 0, out.data(), 40u);
        CHECK(out.values()[39] == 20);
        CHECK(out.values()[40] == 0);
    });
}

TEST_CASE("votes of a block, and the lanes that are active", "[model]") {
    in_every_way([] {
        const Buffer<int> votes(65);
        launch(vote_in_block, 1, 65, 0, votes.data());
        CHECK(votes.values() == std::vector<int>(65, 2 + 8 * 9));
        const Buffer<unsigned> lanes(32);
        launch(active_lanes, 1, 32, 0, lanes.data());
        CHECK(lanes.values()[0] == 0x49249249u);
        CHECK(lanes.values()[1] == ~0x49249249u);
    });
}
