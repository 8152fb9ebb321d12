#include "common/simt/async_copy.hpp"

#include <algorithm>
#include <cstring>

#include "common/simt/block.hpp"

namespace flash::simt {
namespace {

void land(const AsyncCopy& copy) {
    if (copy.global != nullptr) {
        std::memcpy(copy.shared, copy.global, copy.bytes);
    } else {
        std::memset(copy.shared, 0, copy.bytes);
    }
}

/// Ends the first copies of a thread, by its own wait or for an mbarrier that others wait at.
void land_first(Thread& thread, size_t count, bool for_mbarrier) {
    AsyncCopies& copies = thread.copies;
    for (size_t i = 0; i < count; ++i) {
        if (options().cp_async == CpAsync::late) {
            land(copies.pending[i]);
        }
        if (Watcher* const watcher = current_block().watching()) {
            watcher->end_copy(thread, copies.pending[i], for_mbarrier);
        }
    }
    copies.pending.erase(copies.pending.begin(), copies.pending.begin() + static_cast<std::ptrdiff_t>(count));
    copies.landed += count;
    while (!copies.announced.empty() && copies.announced.front().copies <= copies.landed) {
        const void* const mbarrier = copies.announced.front().mbarrier;
        copies.announced.erase(copies.announced.begin());
        arrive_for_copies(thread, mbarrier);
    }
}

/// Ends every copy of the current thread of a group before `group`.
void land_before(unsigned group) {
    Thread& thread = current_block().current();
    const auto& pending = thread.copies.pending;
    const auto end = std::ranges::find_if(pending, [=](const AsyncCopy& copy) { return copy.group >= group; });
    land_first(thread, static_cast<size_t>(end - pending.begin()), false);
}

} // namespace

void start_async_copy(void* shared, const void* global, unsigned bytes, bool valid, Site site) {
    const RuntimeCode runtime;
    AsyncCopies& copies = current_block().current().copies;
    copies.pending.push_back(
        {static_cast<char*>(shared), valid ? static_cast<const char*>(global) : nullptr, bytes, copies.group, site});
    if (Watcher* const watcher = current_block().watching()) {
        watcher->start_copy(current_block().current(), copies.pending.back());
    }
    if (options().cp_async == CpAsync::early) {
        land(copies.pending.back());
    }
}

void commit_async_copies(Site) { ++current_block().current().copies.group; }

void wait_async_copies(unsigned in_flight, Site) {
    const RuntimeCode runtime;
    const unsigned committed = current_block().current().copies.group;
    land_before(committed > in_flight ? committed - in_flight : 0);
}

void wait_all_async_copies(Site) {
    const RuntimeCode runtime;
    land_before(current_block().current().copies.group + 1);
}

void announce_arrival(const void* mbarrier) {
    Thread& thread = current_block().current();
    thread.copies.announced.push_back({mbarrier, thread.copies.landed + thread.copies.pending.size()});
    if (options().cp_async == CpAsync::early || thread.copies.pending.empty()) {
        land_first(thread, thread.copies.pending.size(), true);
    }
}

void land_announced_copies(const void* mbarrier) {
    Block& block = current_block();
    for (unsigned number = 0; number < block.thread_count(); ++number) {
        Thread& thread = block.thread(number);
        for (const Announced& announced : thread.copies.announced) {
            if (announced.mbarrier == mbarrier) {
                land_first(thread, announced.copies - thread.copies.landed, true);
                break; // the list has changed
            }
        }
    }
}

} // namespace flash::simt
