// The order in which a recording lets warps take turns.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "common/simt/observers/turns.hpp"

namespace {

using namespace flash::simt;

/// A recording that is written down: each warp's instructions in their order.
class Script {
  public:
    Recording recording;

    void add(unsigned warp, const char* operation, int64_t number = 0, const void* at = nullptr,
             uint32_t lanes = full_mask) {
        recording.sites.push_back({operation, LocationId(), Space::elsewhere, 0, false, at});
        const auto site = static_cast<uint32_t>(recording.sites.size() - 1);
        recording.warps[warp].push_back({site, {}, {}, lanes, number, {}});
    }

    /// "0 line", "engine": who does what, step by step.
    std::vector<std::string> order(std::optional<Place> last = std::nullopt) {
        turns = take_turns(recording, last);
        std::vector<std::string> told;
        for (const Turn& turn : turns.steps) {
            told.push_back(
                turn.warp == engine
                    ? "engine"
                    : std::to_string(turn.warp) + " " +
                          recording.sites[recording.warps[turn.warp][turn.index].site].operation);
        }
        return told;
    }

    Turns turns;
};

using Steps = std::vector<std::string>;

TEST_CASE("warps take turns, one instruction each", "[turns]") {
    Script script;
    for (int i = 0; i < 2; ++i) {
        script.add(0, "load");
        script.add(1, "store");
    }
    CHECK(script.order() == Steps{"0 load", "1 store", "0 load", "1 store"});
}

TEST_CASE("nobody passes a barrier before all have come", "[turns]") {
    Script script;
    const int barrier = 0;
    script.recording.phases[&barrier] = 1;
    script.add(0, "__syncthreads", 0, &barrier);
    script.add(0, "load");
    script.add(1, "store");
    script.add(1, "store");
    script.add(1, "__syncthreads", 0, &barrier);
    CHECK(script.order() ==
          Steps{"0 __syncthreads", "1 store", "1 store", "1 __syncthreads", "0 load"});
    CHECK(script.turns.steps[0].ended_by == 3);
    CHECK(script.turns.steps[3].ended_by == 3); // the last to come goes on at once
}

TEST_CASE("a barrier that never was complete ends no wait", "[turns]") {
    Script script;
    const int barrier = 0;
    script.add(0, "__syncthreads", 0, &barrier);
    script.add(1, "load");
    CHECK(script.order() == Steps{"0 __syncthreads", "1 load"});
    CHECK(script.turns.steps[0].ended_by == -1);
}

TEST_CASE("a load by TMA lands when somebody waits for it, and not before", "[turns]") {
    Script script;
    const int full = 0;
    script.recording.phases[&full] = 1;
    script.add(1, "mbarrier_expect_tx", 0, &full, 1);
    script.add(1, "tma_load", 0, &full, 1);
    script.add(1, "line");
    script.add(0, "line");
    script.add(0, "line");
    script.add(0, "mbarrier_wait", 0, &full);
    script.add(0, "wgmma_fence");
    CHECK(script.order() == Steps{"0 line", "1 mbarrier_expect_tx", "0 line", "1 tma_load",
                                  "0 mbarrier_wait", "1 line", "engine", "0 wgmma_fence"});
    CHECK(script.turns.steps[4].ended_by == 6);
    REQUIRE(script.turns.works.size() == 1);
    CHECK(script.turns.works[0].steps == std::vector<size_t>{3});
    CHECK(script.turns.works[0].end == 6);
}

TEST_CASE("the phase before the first is over", "[turns]") {
    Script script;
    const int empty = 0;
    script.add(0, "mbarrier_wait", -1, &empty);
    script.add(0, "store");
    CHECK(script.order() == Steps{"0 mbarrier_wait", "0 store"});
}

TEST_CASE("a group of copies ends at the wait that covers it", "[turns]") {
    Script script;
    for (const int64_t group : {0, 1}) {
        script.add(0, "cp.async", group);
        script.add(0, "cp_async_commit");
    }
    script.add(0, "cp_async_wait", 1);
    script.add(0, "cp_async_wait", 0);
    script.order();
    REQUIRE(script.turns.works.size() == 2);
    CHECK(script.turns.works[0].end == 4);
    CHECK(script.turns.works[1].end == 5);
}

TEST_CASE("the instruction of a fault comes last", "[turns]") {
    Script script;
    script.add(0, "store");
    script.add(1, "load");
    script.add(1, "load");
    CHECK(script.order(Place{0, 0}) == Steps{"1 load", "1 load", "0 store"});
}

TEST_CASE("four warps meet for a product of their warpgroup", "[turns]") {
    Script script;
    for (unsigned warp = 0; warp < 4; ++warp) {
        script.add(warp, "wgmma", 0);
    }
    script.add(0, "line");
    const Steps order = script.order();
    CHECK(order.back() == "0 line");
    CHECK(script.turns.steps[0].ended_by == 3);
}

} // namespace
