// How long watching takes, on one core, as a multiple of running the same kernel unwatched. Ratios of processor times,
// not times: they hardly depend on the computer, nor on what else it does.
#include <cstdio>

#include "common/simt/tests/speed.hpp"

using namespace simt_test;

double seconds_unwatched(); // speed_plain.cpp

TEST_CASE("counting and detecting cost no more than they should", "[speed]") {
    const double plain = seconds_unwatched();
    const double watched = seconds({.workers = 1});
    const double counting = seconds({.count = true, .workers = 1});
    const double detecting = seconds({.detect = true, .workers = 1});
    std::printf("running %.3f s; compiled to be watched %.3f s, counting %.3f s, detecting %.3f s\n", plain, watched,
                counting, detecting);
    // Usual are 6, 5 and 9 to 10, on a busy computer too.
    CHECK(watched < 12 * plain);
    CHECK(counting < 7 * watched);
    CHECK(detecting < 15 * watched);
}
