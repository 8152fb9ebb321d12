// mbarriers: a pipeline of two stages whose warps never meet at a __syncthreads, and what happens
// when one of its waits or arrivals is missing.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
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
