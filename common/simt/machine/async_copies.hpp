// cp.async: copies from global to shared memory that a thread starts now and waits for later.
#pragma once

#include <cstdint>
#include <vector>

#include "common/simt/machine/async_work.hpp"

namespace flash::simt {

struct AsyncCopy {
    static constexpr unsigned bytes = 16;
    AsyncWork work;
    uint32_t place; // how many the thread had started before
    char* shared;
    const char* global; // null: fill with zeros
};

/// An arrival at an mbarrier that takes place when the copies started before it have landed.
struct Announced {
    const void* mbarrier;
    uint32_t copies; // how many the thread had started
};

/// The copies of one thread. They land in the order in which they were started.
struct AsyncCopies {
    std::vector<AsyncCopy> pending; // those that have not landed
    uint32_t landed = 0;            // how many have
    std::vector<uint32_t> groups;   // for each commit, how many had been started
    std::vector<Announced> announced;

    uint32_t started() const { return landed + static_cast<uint32_t>(pending.size()); }
};

/// The current thread starts a copy; fills with zeros when not `valid`, and then does not touch
/// global memory.
void cp_async_16(void* shared, const void* global, bool valid = true, Site site = Site::here());
void cp_async_commit();

/// Waits until at most `in_flight` of the committed groups are under way.
void wait_async_copies(unsigned in_flight);

/// The current thread's arrival at an mbarrier follows its copies.
void announce_arrival(const void* mbarrier);

/// Lands all copies of the block that arrivals at this mbarrier follow, and lets them arrive.
void land_announced_copies(const void* mbarrier);

} // namespace flash::simt
