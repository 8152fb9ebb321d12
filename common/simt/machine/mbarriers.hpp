// The mbarriers of a block: what the runtime knows of each 8-byte word in shared memory that was made one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/simt/machine/async_copies.hpp"
#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/site.hpp"

namespace flash::simt {

struct MBarrier {
    unsigned expected = 0; // arrivals that end a phase
    unsigned arrived = 0;
    unsigned announced = 0; // arrivals that follow when copies of cp.async have landed
    uint32_t phase = 0;     // that is under way, from 0

    // Of this phase. It ends when all arrivals have come and these two are equal.
    int64_t expected_bytes = 0;
    int64_t landed_bytes = 0;
    std::vector<BulkLoad> flying; // loads that have not landed
    int64_t came_bytes() const;   // with those

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
void expect_bytes(uint64_t* barrier, int bytes, Site site); // and arrives
void load_for_mbarrier(const void* barrier, BulkLoad&& load);
void arrive_after_copies(uint64_t* barrier, Site site);
void wait_at_mbarrier(uint64_t* barrier, int parity, Site site);

/// The arrival of a thread whose copies have landed.
void arrive_for_copies(unsigned thread, const Announced& announced);

} // namespace flash::simt
