#include "common/simt/machine/mbarriers.hpp"

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

void note(const void* barrier, Kind kind, Site site) {
    Block& block = current_block();
    for (Observer* const observer : block.observers()) {
        observer->touch_mbarrier(block.current().number,
                                 {static_cast<const char*>(barrier), sizeof(uint64_t), kind, Origin::of(site)});
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

void end_phase(const void* address, MBarrier& barrier) {
    ++barrier.phase;
    barrier.arrived = 0;
    for (Observer* const observer : current_block().observers()) {
        observer->end_phase(address);
    }
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

void arrive(const void* address, MBarrier& barrier) {
    if (++barrier.arrived == barrier.expected) {
        end_phase(address, barrier);
    }
}

void release(const void* address) {
    Block& block = current_block();
    for (Observer* const observer : block.observers()) {
        observer->release(block.current().number, address);
    }
}

} // namespace

void init_mbarrier(uint64_t* barrier, int arrivals, Site site) {
    const RuntimeCode runtime;
    note(barrier, Kind::store, site);
    MBarrier made;
    made.expected = static_cast<unsigned>(arrivals);
    current_block().mbarriers()[barrier] = std::move(made);
    for (Observer* const observer : current_block().observers()) {
        observer->make_mbarrier(barrier);
    }
}

void arrive_at_mbarrier(uint64_t* address, Site site) {
    const RuntimeCode runtime;
    MBarrier& barrier = find("mbarrier_arrive", address, site);
    release(address);
    arrive(address, barrier);
    end_phase_if_due(address, barrier);
}

void arrive_after_copies(uint64_t* address, Site site) {
    const RuntimeCode runtime;
    MBarrier& barrier = find("cp_async_mbarrier_arrive", address, site);
    release(address);
    ++barrier.announced;
    announce_arrival(address);
    end_phase_if_due(address, barrier);
}

void arrive_for_copies(unsigned thread, const Announced& announced) {
    MBarrier& barrier = current_block().mbarriers().at(announced.mbarrier);
    for (Observer* const observer : current_block().observers()) {
        observer->hand_on_copies(thread, announced.copies, announced.mbarrier);
    }
    --barrier.announced;
    arrive(announced.mbarrier, barrier);
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
    for (Observer* const observer : block.observers()) {
        observer->acquire(block.current().number, address);
    }
}

} // namespace flash::simt
