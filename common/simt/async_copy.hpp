// cp.async: copies from global to shared memory that a thread starts now and waits for later.
#pragma once

#include <cstdint>
#include <vector>

#include "common/simt/site.hpp"

namespace flash::simt {

struct AsyncCopy {
    char* shared;
    const char* global; // null: fill with zeros
    unsigned bytes;
    unsigned group;
    Site site;
};

/// An arrival at an mbarrier that takes place when the copies started before it have landed.
struct Announced {
    const void* mbarrier;
    uint64_t copies; // how many the thread had started
};

/// The copies of one thread that it has not waited for, oldest first.
struct AsyncCopies {
    std::vector<AsyncCopy> pending;
    std::vector<Announced> announced;
    unsigned group = 0; // that the next commit closes
    uint64_t landed = 0;

    void clear() { // and keep the memory
        pending.clear();
        announced.clear();
        group = 0;
        landed = 0;
    }
};

void start_async_copy(void* shared, const void* global, unsigned bytes, bool valid, Site site);
void commit_async_copies(Site site);

/// Waits until at most `in_flight` of the committed groups are under way.
void wait_async_copies(unsigned in_flight, Site site);
void wait_all_async_copies(Site site);

struct Thread;

/// The current thread's arrival at an mbarrier follows its copies.
void announce_arrival(const void* mbarrier);

/// Lands all copies of the block that arrivals at this mbarrier follow, and lets them arrive.
void land_announced_copies(const void* mbarrier);
void arrive_for_copies(const Thread& thread, const void* mbarrier); // in mbarrier.cpp

} // namespace flash::simt
