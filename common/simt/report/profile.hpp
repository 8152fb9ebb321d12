// What kernels cost, kernel by kernel, line by line and buffer by buffer, since counting began.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/simt/observers/observers.hpp"

namespace flash::simt {

/// What is wrong with the memory traffic of a line, if anything.
struct Findings {
    // shared memory: more than 1.1 times the wavefronts that it could do with
    bool conflicted = false;
    // global memory: more than 1.3 times the sectors that each request's bytes would fill
    bool uncoalesced = false;
};
Findings findings(const Counters& counters);

struct KernelProfile : KernelLaunches {
    Counters total;
    std::map<SourceLine, Counters> lines;
    std::vector<BufferTraffic> buffers; // in the order of their allocation
};

/// Kernels in the order of their first launch.
std::vector<KernelProfile> profile();

void clear_profile();

/// One JSON document with all that was counted. scripts/profile makes listings of it.
std::string to_json(const std::vector<KernelProfile>& kernels);

} // namespace flash::simt
