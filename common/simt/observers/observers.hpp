// The factory of observers that a program with instrumented kernels has: a detector and counters
// for each block.
#pragma once

#include <string>
#include <vector>

#include "common/simt/machine/grid.hpp"
#include "common/simt/observers/counting.hpp"

namespace flash::simt {

/// From now on kernels can be observed.
void start_watching();

struct KernelLaunches {
    std::string name;
    uint64_t launches = 0;
    dim3 grid, block;        // of the last launch
    size_t shared_bytes = 0; // of one block of the last launch
};

/// What was counted of one kernel, over all its launches.
struct KernelTally : KernelLaunches {
    Tally tally;
};

/// Since counting began; kernels in the order of their first launch.
std::vector<KernelTally>& tallies();

} // namespace flash::simt
