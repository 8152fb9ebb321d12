#include "common/simt/machine/mbarriers.hpp"

#include <utility>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/refuse.hpp"

namespace flash::simt {
namespace {

void note(const void* barrier, Kind kind, Site site) {
    Block& block = current_block();
    for (Observer* const observer : block.observers()) {
        observer->touch_mbarrier(block.current().number,
                                 {static_cast<const char*>(barrier), sizeof(uint64_t), kind, Origin::of(site)});
    }
}

MBarrier& find(const char* operation, const void* barrier, Site site) {
    Block& block = current_block();
    note(barrier, Kind::atomic, site);
    const auto found = block.mbarriers().find(barrier);
    if (found == block.mbarriers().end()) {
        refuse(FaultKind::uninitialised, std::string(operation) + " at an mbarrier that nobody has initialised",
               operation, site);
    }
    return found->second;
}

void end_phase(const void* address, MBarrier& barrier) {
    ++barrier.phase;
    barrier.arrived = 0;
    barrier.expected_bytes = 0;
    barrier.landed_bytes = 0;
    Block& block = current_block();
    for (Observer* const observer : block.observers()) {
        observer->end_phase(address);
    }
    for (const MBarrier::Waiting& waiting : std::exchange(barrier.waiting, {})) {
        for (Observer* const observer : block.observers()) {
            observer->acquire(waiting.thread, address);
        }
        block.release(waiting.thread);
    }
}

void end_phase_if_complete(const void* address, MBarrier& barrier) {
    if (barrier.arrived == barrier.expected && barrier.landed_bytes == barrier.expected_bytes) {
        end_phase(address, barrier);
    }
}

void land_load(const BulkLoad& load, MBarrier& barrier) {
    land(load);
    for (Observer* const observer : current_block().observers()) {
        observer->land(load);
    }
    barrier.landed_bytes += load.bytes;
    end_phase_if_complete(load.mbarrier, barrier);
}

/// Ends the phase if nothing is missing but copies in flight, and somebody waits for it: then they land, the last
/// moment at which they may.
void end_phase_if_due(const void* address, MBarrier& barrier) {
    const auto due = [&] {
        return barrier.arrived + barrier.announced == barrier.expected && !barrier.waiting.empty();
    };
    if (due()) {
        land_announced_copies(address);
    }
    if (due() && !barrier.flying.empty() && barrier.came_bytes() >= barrier.expected_bytes) {
        for (const BulkLoad& load : std::exchange(barrier.flying, {})) {
            land_load(load, barrier);
        }
    }
}

void arrive(const void* address, MBarrier& barrier) {
    ++barrier.arrived;
    end_phase_if_complete(address, barrier);
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

void expect_bytes(uint64_t* address, int bytes, Site site) {
    const RuntimeCode runtime;
    MBarrier& barrier = find("mbarrier_expect_tx", address, site);
    release(address);
    barrier.expected_bytes += bytes;
    arrive(address, barrier);
    end_phase_if_due(address, barrier);
}

void load_for_mbarrier(const void* address, BulkLoad&& load) {
    MBarrier& barrier = find(load.work.operation, address, load.work.site);
    for (Observer* const observer : current_block().observers()) {
        observer->start_load(load);
    }
    if (options().cp_async == CpAsync::early) {
        land_load(load, barrier);
    } else {
        barrier.flying.push_back(std::move(load));
        end_phase_if_due(address, barrier);
    }
}

int64_t MBarrier::came_bytes() const {
    int64_t bytes = landed_bytes;
    for (const BulkLoad& load : flying) {
        bytes += load.bytes;
    }
    return bytes;
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
    bool has_waited = false;
    while (static_cast<int>(barrier.phase & 1) == parity) { // the phase of this parity is still under way
        barrier.waiting.push_back({block.current().number, site});
        end_phase_if_due(address, barrier);
        block.yield();
        has_waited = true; // and acquired when the phase ended
    }
    for (Observer* const observer : block.observers()) {
        if (!has_waited) {
            observer->acquire(block.current().number, address);
        }
    }
}

} // namespace flash::simt
