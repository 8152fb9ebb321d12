// redux.sync: what lanes receive, and what is wrong when one of them does not come.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr unsigned full = 0xffffffffu;

__global__ void reductions(unsigned* out, int* signed_out) {
    const unsigned lane = threadIdx.x;
    const int around_zero = static_cast<int>(lane) - 16;
    out[lane] = __reduce_add_sync(full, lane);
    out[32 + lane] = __reduce_max_sync(full, 100 - lane);
    out[64 + lane] = __reduce_or_sync(full, 1u << lane);
    signed_out[lane] = __reduce_add_sync(full, around_zero);
    signed_out[32 + lane] = __reduce_min_sync(full, around_zero);
    if (lane % 2 == 0) { // half of the lanes, and all others are elsewhere
        out[96 + lane] = __reduce_add_sync(0x55555555u, 1u);
    }
}

__global__ void lane_without_a_part(unsigned* out) {
    out[threadIdx.x] = __reduce_add_sync(0xffu, 1u); // redux
}

} // namespace

TEST_CASE("redux.sync gives all lanes of the mask the reduction of their values") {
    in_every_way([] {
        const Buffer<unsigned> out(128);
        const Buffer<int> signed_out(64);
        launch(reductions, 1, 32, 0, out.data(), signed_out.data());
        for (size_t lane = 0; lane < 32; ++lane) {
            CHECK(out.values()[lane] == 31 * 32 / 2);
            CHECK(out.values()[32 + lane] == 100);
            CHECK(out.values()[64 + lane] == full);
            CHECK(signed_out.values()[lane] == -16);
            CHECK(signed_out.values()[32 + lane] == -16);
            CHECK(out.values()[96 + lane] == (lane % 2 == 0 ? 16 : 0));
        }
    });
}

TEST_CASE("redux.sync by a lane that its mask does not name is reported") {
    const Buffer<unsigned> out(32);
    const Fault fault = fault_at("redux", FaultKind::divergent_barrier,
                                 [&] { launch(lane_without_a_part, 1, 32, 0, out.data()); });
    CHECK_THAT(fault.what(), ContainsSubstring("lane 8 calls __reduce_add_sync"));
}
