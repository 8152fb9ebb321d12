#include "common/simt/machine/async_copies.hpp"

#include <algorithm>
#include <cstring>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

void land(const AsyncCopy& copy) {
    if (copy.global != nullptr) {
        std::memcpy(copy.shared, copy.global, copy.bytes);
    } else {
        std::memset(copy.shared, 0, copy.bytes);
    }
}

/// Lands what has not landed of a thread's first `count` copies; arrivals that follow them take
/// place.
void land_first(Thread& thread, uint32_t count) {
    AsyncCopies& copies = thread.copies;
    const auto end = copies.pending.begin() + (std::max(count, copies.landed) - copies.landed);
    if (options().cp_async == CpAsync::late) {
        std::for_each(copies.pending.begin(), end, land);
    }
    copies.landed += static_cast<uint32_t>(end - copies.pending.begin());
    copies.pending.erase(copies.pending.begin(), end);
    while (!copies.announced.empty() && copies.announced.front().copies <= copies.landed) {
        const Announced announced = copies.announced.front();
        copies.announced.erase(copies.announced.begin());
        arrive_for_copies(thread.number, announced);
    }
}

} // namespace

void cp_async_16(void* shared, const void* global, bool valid, Site site) {
    const Caller caller;
    AsyncCopies& copies = caller.thread.copies;
    const AsyncCopy& copy = copies.pending.emplace_back(
        AsyncCopy{caller.block.new_work("cp.async", site), copies.started(),
                  static_cast<char*>(shared), valid ? static_cast<const char*>(global) : nullptr});
    caller.block.observers().tell(&Observer::start_copy, copy);
    if (options().cp_async == CpAsync::early) {
        land(copy);
    }
}

void cp_async_commit() {
    const Caller caller;
    caller.thread.copies.groups.push_back(caller.thread.copies.started());
}

void wait_async_copies(unsigned in_flight) {
    const Caller caller;
    const auto& groups = caller.thread.copies.groups;
    if (groups.size() > in_flight) {
        const uint32_t count = groups[groups.size() - 1 - in_flight];
        land_first(caller.thread, count);
        caller.tells(&Observer::wait_for_copies, count);
    }
}

void announce_arrival(const void* mbarrier) {
    Thread& thread = current_block().current();
    const uint32_t started = thread.copies.started();
    thread.copies.announced.push_back({mbarrier, started});
    if (options().cp_async == CpAsync::early || thread.copies.pending.empty()) {
        land_first(thread, started);
    }
}

void land_announced_copies(const void* mbarrier) {
    Block& block = current_block();
    for (unsigned number = 0; number < block.thread_count(); ++number) {
        Thread& thread = block.thread(number);
        for (const Announced& announced : thread.copies.announced) {
            if (announced.mbarrier == mbarrier) {
                land_first(thread, announced.copies);
                break; // the list has changed
            }
        }
    }
}

} // namespace flash::simt
