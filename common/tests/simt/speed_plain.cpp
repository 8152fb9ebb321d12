// The kernel of test_speed.cpp as a rung's program has it: optimised, and telling nobody of its
// accesses.
#include "common/tests/simt/speed.hpp"

using namespace simt_test;

double seconds_unwatched() { return seconds({.workers = 1}); }
