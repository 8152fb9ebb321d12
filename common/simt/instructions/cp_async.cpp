#include "common/simt/instructions/cp_async.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/simt/instructions/mbarrier.hpp"
#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

void land(const AsyncCopy& copy) {
    std::copy_n(copy.global, copy.given, copy.shared);
    std::memset(copy.shared + copy.given, 0, copy.bytes - copy.given);
}

/// Lands what has not landed of a thread's first `count` copies; arrivals that follow them take
/// place.
void land_first(unsigned thread, uint32_t count) {
    ThreadCopies& copies = current_block().state<AsyncCopies>().of_thread[thread];
    const auto end = copies.pending.begin() + (std::max(count, copies.landed) - copies.landed);
    if (options().cp_async == CpAsync::late) {
        std::for_each(copies.pending.begin(), end, land);
    }
    copies.landed += static_cast<uint32_t>(end - copies.pending.begin());
    copies.pending.erase(copies.pending.begin(), end);
    while (!copies.announced.empty() && copies.announced.front().copies <= copies.landed) {
        const Announced announced = copies.announced.front();
        copies.announced.erase(copies.announced.begin());
        arrive_for_copies(thread, announced);
    }
}

ThreadCopies& copies_of(const Caller& caller) {
    return caller.block.state<AsyncCopies>().of_thread[caller.thread.number];
}

} // namespace

void AsyncCopies::check_leaving(Block& block, unsigned thread) const {
    const ThreadCopies& copies = of_thread[thread];
    if (!copies.pending.empty() && copies.announced.empty()) {
        block.stop(
            Fault(FaultKind::async_copy_in_flight,
                  "a thread leaves the kernel before its cp.async has landed",
                  block.here("starts the copy", copies.pending.front().work.location),
                  "the shared memory may belong to another block by then: wait for all groups "
                  "(cp_async_wait<0>)")
                .named("left_too_early"));
    }
}

void copy_async(void* shared, const void* global, size_t bytes, size_t given,
                SourceLocation location) {
    const Caller caller;
    if ((bytes != 4 && bytes != 8 && bytes != 16) || given > bytes) {
        caller.block.refuse(FaultKind::invalid_access,
                            "a cp.async of " + std::to_string(given) + " of " +
                                std::to_string(bytes) + " bytes",
                            "a copy", location, "it copies 4, 8 or 16 bytes, or the first of them");
    }
    ThreadCopies& copies = copies_of(caller);
    const AsyncCopy& copy = copies.pending.emplace_back(
        AsyncCopy{caller.block.new_work("cp.async", location), copies.started(),
                  static_cast<char*>(shared), static_cast<const char*>(global),
                  static_cast<uint8_t>(bytes), static_cast<uint8_t>(given)});
    caller.block.observers().tell(&Observer::start_copy, copy);
    if (options().cp_async == CpAsync::early) {
        land(copy);
    }
}

void cp_async_16(void* shared, const void* global, bool valid, SourceLocation location) {
    copy_async(shared, global, 16, valid ? 16 : 0, location);
}

void cp_async_commit(SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"cp_async_commit", location});
    ThreadCopies& copies = copies_of(caller);
    copies.groups.push_back(copies.started());
}

void wait_async_copies(unsigned in_flight, SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"cp_async_wait", location, nullptr, in_flight});
    const auto& groups = copies_of(caller).groups;
    if (groups.size() > in_flight) {
        const uint32_t count = groups[groups.size() - 1 - in_flight];
        land_first(caller.thread.number, count);
        caller.tells(&Observer::wait_for_copies, count);
    }
}

void announce_arrival(const void* mbarrier) {
    const Caller caller;
    ThreadCopies& copies = copies_of(caller);
    const uint32_t started = copies.started();
    copies.announced.push_back({mbarrier, started});
    if (options().cp_async == CpAsync::early || copies.pending.empty()) {
        land_first(caller.thread.number, started);
    }
}

void land_announced_copies(const void* mbarrier) {
    const std::vector<ThreadCopies>& of_thread = current_block().state<AsyncCopies>().of_thread;
    for (unsigned thread = 0; thread < of_thread.size(); ++thread) {
        for (const Announced& announced : of_thread[thread].announced) {
            if (announced.mbarrier == mbarrier) {
                land_first(thread, announced.copies);
                break; // the list has changed
            }
        }
    }
}

} // namespace flash::simt
