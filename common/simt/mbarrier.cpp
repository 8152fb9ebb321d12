#include "common/simt/mbarrier.hpp"

#include "common/simt/block.hpp"

namespace flash::simt {
namespace {

void note(const void* barrier, Kind kind, Site site) {
    if (Watcher* const watcher = current_block().watching()) {
        watcher->check(current_block().current(), barrier, sizeof(uint64_t), kind, Origin::of(site));
    }
}

MBarrier& find(const char* operation, uint64_t* barrier, Site site) {
    Block& block = current_block();
    note(barrier, Kind::atomic, site);
    const auto found = block.mbarriers().find(barrier);
    if (found == block.mbarriers().end()) {
        Fault fault(FaultKind::uninitialised, std::string(operation) + " at an mbarrier that nobody has initialised");
        fault.where = block.here(std::string("calls ") + operation, site);
        block.stop(std::move(fault));
    }
    return found->second;
}

void end_phase(MBarrier& barrier) {
    ++barrier.phase;
    barrier.arrived = 0;
    barrier.handed_on = barrier.gathered; // who waits for this phase has waited for those before
    barrier.handed_on_epoch = barrier.gathered_epoch;
    for (const MBarrier::Waiting& waiting : barrier.waiting) {
        current_block().release(waiting.thread);
    }
    barrier.waiting.clear();
}

/// Ends the phase if nothing is missing but copies in flight, and somebody waits for it: then they land, the last
/// moment at which they may.
void end_phase_if_due(const void* address, MBarrier& barrier) {
    if (barrier.arrived + barrier.announced == barrier.expected && !barrier.waiting.empty()) {
        land_announced_copies(address);
    }
}

void arrive(MBarrier& barrier) {
    if (++barrier.arrived == barrier.expected) {
        end_phase(barrier);
    }
}

} // namespace

void init_mbarrier(uint64_t* barrier, int arrivals, Site site) {
    const RuntimeCode runtime;
    note(barrier, Kind::store, site);
    MBarrier made;
    made.expected = static_cast<unsigned>(arrivals);
    current_block().mbarriers()[barrier] = std::move(made);
}

void arrive_at_mbarrier(uint64_t* address, Site site) {
    const RuntimeCode runtime;
    MBarrier& barrier = find("mbarrier_arrive", address, site);
    if (Watcher* const watcher = current_block().watching()) {
        watcher->release(current_block().current(), barrier);
    }
    arrive(barrier);
    end_phase_if_due(address, barrier);
}

void arrive_after_copies(uint64_t* address, Site site) {
    const RuntimeCode runtime;
    MBarrier& barrier = find("cp_async_mbarrier_arrive", address, site);
    if (Watcher* const watcher = current_block().watching()) {
        watcher->release(current_block().current(), barrier);
    }
    ++barrier.announced;
    announce_arrival(address);
    end_phase_if_due(address, barrier);
}

void arrive_for_copies(const Thread& thread, const Announced& announced) {
    MBarrier& barrier = current_block().mbarriers().at(announced.mbarrier);
    if (Watcher* const watcher = current_block().watching()) {
        watcher->hand_on_copies(thread, announced.copies, barrier);
    }
    --barrier.announced;
    arrive(barrier);
}

void wait_at_mbarrier(uint64_t* address, int parity, Site site) {
    const RuntimeCode runtime;
    Block& block = current_block();
    MBarrier& barrier = find("mbarrier_wait", address, site);
    while (static_cast<int>(barrier.phase & 1) == parity) { // the phase of this parity is still under way
        barrier.waiting.push_back({block.current().number, site});
        end_phase_if_due(address, barrier);
        block.yield();
    }
    if (Watcher* const watcher = block.watching()) {
        watcher->acquire(block.current(), barrier);
    }
}

} // namespace flash::simt
