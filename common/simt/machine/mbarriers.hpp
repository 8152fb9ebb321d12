// The mbarriers of a block: what the runtime knows of each 8-byte word in shared memory that was made one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/simt/machine/async_copies.hpp"
#include "common/simt/machine/site.hpp"

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
};

using MBarriers = std::map<const void*, MBarrier>;

// What the current thread does at one.
void init_mbarrier(uint64_t* barrier, int arrivals, Site site);
void arrive_at_mbarrier(uint64_t* barrier, Site site);
void arrive_after_copies(uint64_t* barrier, Site site);
void wait_at_mbarrier(uint64_t* barrier, int parity, Site site);

/// The arrival of a thread whose copies have landed.
void arrive_for_copies(unsigned thread, const Announced& announced);

} // namespace flash::simt
