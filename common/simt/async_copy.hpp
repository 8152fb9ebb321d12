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

/// The copies of one thread that it has not waited for, oldest first.
struct AsyncCopies {
    std::vector<AsyncCopy> pending;
    unsigned group = 0; // that the next commit closes
    void clear() {
        pending.clear();
        group = 0;
    }
};

void start_async_copy(void* shared, const void* global, unsigned bytes, bool valid, Site site);
void commit_async_copies(Site site);

/// Waits until at most `in_flight` of the committed groups are under way.
void wait_async_copies(unsigned in_flight, Site site);
void wait_all_async_copies(Site site);

} // namespace flash::simt
