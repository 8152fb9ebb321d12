// How long watching takes, on one core, as a multiple of running the same kernel unwatched. Ratios
// of processor times, not times: they hardly depend on the computer, nor on what else it does.
#include <algorithm>
#include <cstdio>

#include "common/tests/simt/speed.hpp"

using namespace simt_test;

double seconds_unwatched(); // speed_plain.cpp

TEST_CASE("counting and detecting cost no more than they should", "[speed]") {
    double plain = 1e9, watched = 1e9, counting = 1e9, detecting = 1e9;
    // the least of several, taken in turn: what else runs meets all of them
    for (int round = 0; round < 4; ++round) {
        plain = std::min(plain, seconds_unwatched());
        watched = std::min(watched, seconds({.workers = 1}));
        counting = std::min(counting, seconds({.count = true, .workers = 1}));
        detecting = std::min(detecting, seconds({.detect = true, .workers = 1}));
    }
    std::printf(
        "running %.3f s; compiled to be watched %.3f s, counting %.3f s, detecting %.3f s\n", plain,
        watched, counting, detecting);
    // Usual are 6, 5 to 8 and 7 to 10, by the processor; on a busy computer, too.
    CHECK(watched < 12 * plain);
    CHECK(counting < 10 * watched);
    CHECK(detecting < 15 * watched);
}
