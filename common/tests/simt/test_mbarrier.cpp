// mbarriers: a pipeline of two stages whose warps never meet at a __syncthreads, and what happens
// when one of its waits or arrivals is missing.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int threads = 96, warps = 3, tiles = 7, tile = 4 * threads;

enum class Without {
    nothing,
    epochs,
    wait_for_full,
    wait_for_free,
    syncwarp,
    syncthreads,
    arrival,
    a_copy
};

/// out[t] = sum over tiles of the elements of tile j that thread 95 - t copied.
template <Without missing> __global__ void pipeline(const float* in, float* out) {
    float* smem = flash::dynamic_shared<float>();
    __shared__ uint64_t full[2], free[2];
    const int t = threadIdx.x;
    if (t < 2) {
        mbarrier_init(full + t, threads);
        mbarrier_init(free + t, warps);
    }
    if (missing != Without::syncthreads) {
        __syncthreads(); // the mbarriers are initialised
    }
    const auto copy = [&](int j) {
        if (missing != Without::wait_for_free) {
            // all warps have read the tile before the last
            mbarrier_wait(free + j % 2, j / 2 % 2 ^ 1);
        }
        if (missing != Without::a_copy || t != 5) {
            cp_async_16(smem + j % 2 * tile + 4 * t, in + j * tile + 4 * t); // copy
            cp_async_mbarrier_arrive(full + j % 2);
        }
    };
    copy(0);
    if (missing != Without::epochs) {
        __syncthreads(); // not needed: a new epoch begins while copies are in flight
    }
    float sum = 0;
    for (int j = 0; j < tiles; ++j) {
        if (j + 1 < tiles) {
            copy(j + 1);
        }
        if (missing != Without::wait_for_full) {
            mbarrier_wait(full + j % 2, j / 2 % 2); // the tile is complete
        }
        for (int i = 0; i < 4; ++i) {
            sum += smem[j % 2 * tile + 4 * (threads - 1 - t) + i]; // use
        }
        if (missing != Without::syncwarp) {
            __syncwarp(); // all lanes have read the tile before lane 0 says so
        }
        if (t % 32 == 0 && missing != Without::arrival) {
            mbarrier_arrive(free + j % 2);
        }
    }
    out[t] = sum;
}

__global__ void not_initialised(float* out) {
    __shared__ uint64_t barrier[1];
    mbarrier_wait(barrier, 0);
    out[threadIdx.x] = 1;
}

/// How the 32 readers of a ring say that they are through with a slot.
enum class Release {
    by_lane_0, // which nothing orders after the waits of the others
    after_syncwarp,
    by_warp,
    after_shuffle,
    after_vote_of_some, // the others have not waited
    after_named_barrier,
    after_flags,
    by_each,
    by_lane_0_alone, // no other lane waits
    by_turns,        // in each phase one lane waits, and arrives
    by_turns_apart,  // likewise, and lanes never meet
    waiting_twice,
    late_wait, // lane 5 waits only after lane 0 has arrived
};

/// A ring of two slots that holds nothing but its barriers: one writer, a warp of readers.
template <Release release> __global__ void ring() {
    __shared__ uint64_t full[2], empty[2];
    __shared__ unsigned flags[32];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < 2; ++slot) {
            mbarrier_init(full + slot, 1);
            mbarrier_init(empty + slot, release == Release::by_each ? 32 : 1);
        }
    }
    if (threadIdx.x < 32) {
        flags[lane] = 0;
    }
    __syncthreads(); // the mbarriers are initialised
    for (int j = 0; j < 8; ++j) {
        const int slot = j % 2, phase = j / 2 % 2;
        if (threadIdx.x == 32) {
            mbarrier_wait(empty + slot, phase ^ 1);
            mbarrier_arrive(full + slot); // the slot is full
        }
        if (threadIdx.x >= 32) {
            continue;
        }
        const bool by_turns = release == Release::by_turns || release == Release::by_turns_apart;
        const int speaker = by_turns ? j / 2 : 0;
        const bool speaks = release == Release::by_each || lane == speaker;
        const bool waits = release == Release::after_vote_of_some ? lane < 8
                           : by_turns || release == Release::by_lane_0_alone
                               ? lane == speaker
                               : release != Release::late_wait || lane != 5;
        if (waits) {
            mbarrier_wait(full + slot, phase); // a reader waits
        }
        if (release == Release::waiting_twice) {
            mbarrier_wait(full + slot, phase);
        }
        if (release == Release::after_syncwarp || release == Release::waiting_twice) {
            __syncwarp(); // all lanes have passed their waits
        }
        if (release == Release::after_shuffle) {
            __shfl_xor_sync(0xffffffffu, lane, 1); // likewise
        }
        if (release == Release::after_vote_of_some && lane < 8) {
            __any_sync(0xffu, 1); // those who have waited meet
        }
        if (release == Release::after_named_barrier) {
            named_barrier_sync(1, 32); // all lanes have passed their waits
        }
        if (release == Release::after_flags && lane != 0) {
            __threadfence_block();
            atomicExch(flags + lane, j + 1);
        }
        for (int other = 1; release == Release::after_flags && lane == 0 && other < 32; ++other) {
            while (atomicAdd(flags + other, 0) <= static_cast<unsigned>(j)) {
            }
            __threadfence_block();
        }
        if (release == Release::late_wait && lane != 5) {
            __syncwarp(~(1u << 5)); // all lanes have passed their waits, but for one
        }
        if (release == Release::by_warp) {
            mbarrier_arrive_warp(empty + slot);
        } else if (speaks) {
            mbarrier_arrive(empty + slot);
        }
        if (release == Release::late_wait && lane == 5) {
            mbarrier_wait(full + slot, phase); // a reader waits late
        }
        if (release == Release::by_turns) {
            __syncwarp(); // the next lane to wait knows that this phase has ended
        }
    }
}

template <Release release> void run_ring() { launch(ring<release>, 1, 64, 0); }

template <Without missing> void run(bool check = false) {
    std::vector<float> numbers(tiles * tile);
    for (size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<float>(i % 97);
    }
    const Buffer<float> in(numbers), out(threads);
    launch(pipeline<missing>, 1, threads, 2 * tile * sizeof(float), in.data(), out.data());
    for (size_t t = 0; check && t < threads; ++t) {
        float sum = 0;
        for (size_t j = 0; j < tiles; ++j) {
            for (size_t i = 0; i < 4; ++i) {
                sum += numbers[j * tile + 4 * (threads - 1 - t) + i];
            }
        }
        CHECK(out.values()[t] == sum);
    }
}

} // namespace

TEST_CASE("a pipeline over mbarriers is right and without a fault, in every schedule") {
    for (const bool detect : {false, true}) {
        const auto use = [] {
            CHECK_NOTHROW(run<Without::nothing>(true));
            CHECK_NOTHROW(run<Without::epochs>(true));
        };
        in_every_way(use, detect);
    }
}

TEST_CASE("a missing wait, arrival or barrier of the pipeline is reported, in every schedule") {
    const auto kind = [](void (*broken)(bool)) { return fault_of([&] { broken(false); }).kind; };
    // A thread that uses a buffer too early meets either the other's finished copy or one that is
    // still in flight.
    const auto early = [](FaultKind found) {
        return found == FaultKind::race || found == FaultKind::async_copy_in_flight;
    };
    in_every_way([&] {
        CHECK(early(kind(run<Without::wait_for_full>)));
        CHECK(early(kind(run<Without::wait_for_free>)));
        CHECK(early(kind(run<Without::syncwarp>)));
        const FaultKind initialisation = kind(run<Without::syncthreads>);
        CHECK((initialisation == FaultKind::race || initialisation == FaultKind::uninitialised));
        CHECK(kind(run<Without::arrival>) == FaultKind::deadlock);
    });
}

TEST_CASE("a deadlock at an mbarrier says how many have arrived") {
    const Fault fault = fault_of([] { run<Without::arrival>(); });
    CHECK_THAT(fault.what(), ContainsSubstring("wait in mbarrier_wait at ") &&
                                 ContainsSubstring("(0 of 3 have arrived), the first is (0,0,0)"));
    CHECK_THAT(fault_of([] { run<Without::a_copy>(); }).what(),
               ContainsSubstring("(0 of 96 have arrived, 95 will when their copies have landed)"));
    const Buffer<float> out(1);
    CHECK_THAT(fault_of([&] { launch(not_initialised, 1, 1, 0, out.data()); }).what(),
               ContainsSubstring("mbarrier_wait at an mbarrier that no thread has initialised"));
}

TEST_CASE("a wait that the next phase may overtake is reported, in every schedule", "[faults]") {
    in_every_way([] {
        struct Broken {
            void (*launch)();
            const char* wait;
        };
        for (const auto& [broken, line] :
             {Broken{run_ring<Release::by_lane_0>, "a reader waits"},
              Broken{run_ring<Release::late_wait>, "a reader waits late"}}) {
            const Fault fault = fault_at(line, FaultKind::missed_phase, broken);
            CHECK(fault.other.line.line == line_of(__FILE__, "the slot is full"));
            CHECK_THAT(fault.what(), ContainsSubstring("ring<") &&
                                         ContainsSubstring("may come too late") &&
                                         ContainsSubstring("(32,0,0) of block (0,0,0) ends"));
        }
        CHECK(fault_of(run_ring<Release::by_turns_apart>).kind == FaultKind::missed_phase);
    });
}

TEST_CASE("a wait that comes before the next phase is over, by whatever means, is no fault") {
    for (const bool detect : {false, true}) {
        in_every_way(
            [] {
                CHECK_NOTHROW(run_ring<Release::after_syncwarp>());
                CHECK_NOTHROW(run_ring<Release::by_warp>());
                CHECK_NOTHROW(run_ring<Release::after_shuffle>());
                CHECK_NOTHROW(run_ring<Release::after_vote_of_some>());
                CHECK_NOTHROW(run_ring<Release::after_named_barrier>());
                CHECK_NOTHROW(run_ring<Release::after_flags>());
                CHECK_NOTHROW(run_ring<Release::by_each>());
                CHECK_NOTHROW(run_ring<Release::by_lane_0_alone>());
                CHECK_NOTHROW(run_ring<Release::by_turns>());
                CHECK_NOTHROW(run_ring<Release::waiting_twice>());
            },
            detect);
    }
}

TEST_CASE("without the detector, a thread that starves waits for ever for the phase it missed") {
    const With starving({.schedule = {simt::Schedule::starve, 5}});
    CHECK(fault_of(run_ring<Release::by_lane_0>).kind == FaultKind::deadlock);
    CHECK_NOTHROW(run_ring<Release::by_warp>());
}
