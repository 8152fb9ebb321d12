// The mbarriers of a block: what the runtime knows of each 8-byte word in shared memory that was
// made one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/simt/machine/async_copies.hpp"
#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/meetings.hpp"

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

    std::vector<WaitingThread> waiting; // for the end of this phase
};

using MBarriers = std::map<const void*, MBarrier>;

// What the current thread does at one.
void mbarrier_init(uint64_t* barrier, int arrivals, Site site = Site::here());
void mbarrier_arrive(uint64_t* barrier, Site site = Site::here());
void mbarrier_expect_tx(uint64_t* barrier, int bytes, Site site = Site::here()); // and arrives
void cp_async_mbarrier_arrive(uint64_t* barrier, Site site = Site::here());
void mbarrier_wait(uint64_t* barrier, int parity, Site site = Site::here());
void fence_mbarrier_init();

/// A load begins that counts at its mbarrier.
void begin_flight(BulkLoad&& load);

/// The arrival of a thread whose copies have landed.
void arrive_for_copies(unsigned thread, const Announced& announced);

} // namespace flash::simt
