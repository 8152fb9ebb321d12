// In which order blocks take their tiles (common/cuda/derived/tile_order.hpp): a result tells
// nothing of it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/launch/device_buffer.hpp"
#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "steps/42_backward_two_kernels/backward_two_kernels.hpp"
#include "steps/43_backward_one_kernel/backward_one_kernel.hpp"
#include "steps/44_backward_roles/backward_roles.hpp"

namespace {

using flash::DeviceBuffer;
using flash::Half;
using flash::Problem;
using flash::TileOrder;
using Backward = void (*)(const Problem&, const Half*, const Half*, const Half*, const Half*,
                          const float*, const Half*, Half*, Half*, Half*, void* workspace);

constexpr int64_t d = 64;

/// A buffer of zeros. The host can reach it here.
template <class T> DeviceBuffer<T> zeros(int64_t size, const char* name) {
    DeviceBuffer<T> buffer(size, name);
    std::fill(buffer.data(), buffer.data() + size, T{});
    return buffer;
}

/// Where a rung faults if dQ lacks its last row, or dK its first: the kernel and its block.
flash::simt::Fault fault_of(Backward rung, const Problem& p, bool dQ_short) {
    const auto Q = zeros<Half>(p.q_size(), "Q"), K = zeros<Half>(p.kv_size(), "K"),
               V = zeros<Half>(p.kv_size(), "V");
    const auto O = zeros<Half>(p.q_size(), "O"), dO = zeros<Half>(p.q_size(), "dO");
    const auto LSE = zeros<float>(p.lse_size(), "LSE");
    const DeviceBuffer<Half> dQ(p.q_size() - (dQ_short ? d : 0), "dQ"), dK(p.kv_size(), "dK"),
        dV(p.kv_size(), "dV");
    const DeviceBuffer<char> workspace(int64_t{1} << 20, "the workspace");
    const flash::simt::Options before = flash::simt::options();
    flash::simt::options().detect = true;
    flash::simt::Fault found(flash::simt::FaultKind::launch, "nobody missed the row");
    try {
        rung(p, Q.data(), K.data(), V.data(), O.data(), LSE.data(), dO.data(), dQ.data(),
             dK.data() - (dQ_short ? 0 : d), dV.data(), workspace.data());
    } catch (const flash::simt::Fault& fault) {
        found = fault;
    }
    flash::simt::options() = before;
    return found;
}

} // namespace

TEST_CASE("every tile has one number; a wave is some heads, and in it the last tiles come first") {
    const auto [heads, wave_heads, Tr] =
        GENERATE(TileOrder{1, 1, 1}, TileOrder{1, 1, 5}, TileOrder{6, 1, 3}, TileOrder{6, 6, 3},
                 TileOrder{6, 4, 3}, TileOrder{7, 3, 2});
    const TileOrder order{heads, wave_heads, Tr};
    CAPTURE(heads, wave_heads, Tr);
    REQUIRE(order.blocks() == heads * Tr);
    std::set<std::pair<int, int>> seen;
    flash::Tile before{-1, -1};
    for (int number = 0; number < order.blocks(); ++number) {
        const flash::Tile tile = flash::tile_of(static_cast<unsigned>(number), order);
        seen.insert({tile.head, tile.i});
        CHECK((tile.head >= 0 && tile.head < heads && tile.i >= 0 && tile.i < Tr));
        const int wave = tile.head / wave_heads, wave_before = before.head / wave_heads;
        if (number == 0 || wave != wave_before) {
            CHECK(tile.head == (number == 0 ? 0 : wave_before + 1) * wave_heads);
            CHECK(tile.i == Tr - 1);
        } else {
            CHECK(((tile.i == before.i && tile.head == before.head + 1) || tile.i == before.i - 1));
        }
        before = tile;
    }
    CHECK(seen.size() == static_cast<size_t>(order.blocks()));
}

TEST_CASE("with a mask a wave fills the GPU's places twice, without one it is one head") {
    Problem p{.batch = 2, .heads = 6, .q_len = 64, .kv_len = 64, .head_dim = d};
    CHECK(flash::order_in_waves(p, 6, 5, 20).wave_heads == 1);
    p.causal = true;
    CHECK(flash::order_in_waves(p, 6, 5, 20).wave_heads == 8); // 2 * 20 places, 5 tiles per head
    CHECK(flash::order_in_waves(p, 6, 5, 200).wave_heads == 12);
    CHECK(flash::order_in_waves(p, 6, 500, 20).wave_heads == 1);
    CHECK(flash::order_in_waves(p, 6, 5, 20).heads == 12);
    CHECK(flash::order_in_waves(p, 6, 5, 20).Tr == 5);
    CHECK_THROWS_AS(flash::order_in_waves(p, 6, int64_t{1} << 30, 20), flash::Error);
}

TEST_CASE("backward_two_kernels to backward_roles begin with the longest tiles: the last one of Q, "
          "and the first one of K") {
    const Backward rung = GENERATE(backward_two_kernels::attention_backward<Half>,
                                   backward_one_kernel::attention_backward<Half>,
                                   backward_roles::attention_backward<Half>);
    const Problem p{.q_len = 600,
                    .kv_len = 600,
                    .head_dim = d,
                    .scale = flash::default_scale(d),
                    .causal = true};
    const flash::simt::Fault first_keys = fault_of(rung, p, false);
    INFO(first_keys.what());
    CHECK(first_keys.kind == flash::simt::FaultKind::out_of_bounds);
    CHECK(first_keys.where.block.x == 0);
    // dQ is its own kernel's here
    if (rung == static_cast<Backward>(backward_two_kernels::attention_backward<Half>)) {
        const flash::simt::Fault last_queries = fault_of(rung, p, true);
        INFO(last_queries.what());
        CHECK(last_queries.kind == flash::simt::FaultKind::out_of_bounds);
        CHECK(last_queries.where.block.x == 0);
    }
}
