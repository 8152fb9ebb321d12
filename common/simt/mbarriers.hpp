// The mbarriers of a block: what the runtime knows of each 8-byte word in shared memory that was made one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/simt/clocks.hpp"
#include "common/simt/site.hpp"

namespace flash::simt {

struct MBarrier {
    unsigned expected = 0; // arrivals that end a phase
    unsigned arrived = 0;
    unsigned announced = 0; // arrivals that follow when copies of cp.async have landed
    uint32_t phase = 0;     // that is under way, from 0

    struct Waiting {
        unsigned thread;
        Site site;
    };
    std::vector<Waiting> waiting; // for the end of this phase

    // What those who arrive hand on to those who wait, for this phase and for the one before. The clocks hold for the
    // epoch in which they were gathered: at the next __syncthreads all know more. Of copies they do not.
    Clocks::Knowledge gathered, handed_on;
    uint32_t gathered_epoch = 0, handed_on_epoch = 0;
};

using MBarriers = std::map<const void*, MBarrier>;

} // namespace flash::simt
