// How long the emulation takes on one core. Hidden, because times depend on the computer: test_simt "[speed]" prints
// them, and compares them with what we aim at.
#include <cstdio>

#include "common/simt/tests/speed.hpp"

using namespace simt_test;

double seconds_unwatched(); // speed_plain.cpp

TEST_CASE("speed", "[.][speed]") {
    simt::Options options;
    options.workers = 1;
    const double plain = seconds_unwatched();
    const double watched = seconds(options);
    options.count = true;
    const double counting = seconds(options);
    options.count = false;
    options.detect = true;
    const double detecting = seconds(options);
    std::printf("running %.3f s; compiled to be watched %.3f s, counting %.3f s, detecting %.3f s\n", plain, watched,
                counting, detecting);
    CHECK(plain < 0.2);
    CHECK(counting < 3);
}
