#include "common/simt/instructions/mbarrier.hpp"

#include <utility>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

void touch(const Caller& caller, const void* barrier, AccessKind kind, SourceLocation location) {
    caller.tells(&Observer::touch, {static_cast<const char*>(barrier), sizeof(uint64_t), kind,
                                    LocationId::of(location)});
}

MBarrier& find(const Caller& caller, const char* operation, const void* barrier,
               SourceLocation location) {
    touch(caller, barrier, AccessKind::atomic, location);
    auto& barriers = caller.block.state<MBarriers>().at;
    const auto found = barriers.find(barrier);
    if (found == barriers.end()) {
        caller.block.refuse(FaultKind::uninitialised,
                            std::string(operation) +
                                " at an mbarrier that no thread has initialised",
                            operation, location);
    }
    return found->second;
}

void end_phase_if_complete(const void* address, MBarrier& barrier) {
    if (barrier.arrived == barrier.expected && barrier.landed_bytes == barrier.expected_bytes) {
        ++barrier.phase;
        barrier.arrived = 0;
        barrier.expected_bytes = 0;
        barrier.landed_bytes = 0;
        current_block().end_phase(address, barrier.waiting);
    }
}

void land_load(const BulkLoad& load, MBarrier& barrier) {
    land(load);
    current_block().observers().tell(&Observer::land, load);
    barrier.landed_bytes += load.bytes;
    end_phase_if_complete(load.mbarrier, barrier);
}

/// Ends the phase if nothing is missing but copies in flight, and somebody waits for it: then they
/// land, the last moment at which they may.
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

/// The current thread arrives, and that many bytes are expected.
void arrive_expecting(int bytes, const char* operation, uint64_t* address,
                      SourceLocation location) {
    const Caller caller;
    MBarrier& barrier = find(caller, operation, address, location);
    caller.tells(&Observer::instruct, {operation, location, address, bytes});
    caller.tells(&Observer::release, address, location);
    barrier.expected_bytes += bytes;
    arrive(address, barrier);
    end_phase_if_due(address, barrier);
}

} // namespace

int64_t MBarrier::came_bytes() const {
    int64_t bytes = landed_bytes;
    for (const BulkLoad& load : flying) {
        bytes += load.bytes;
    }
    return bytes;
}

void MBarriers::add_waiters(std::vector<Waiter>& waiters) const {
    for (const auto& [address, barrier] : at) {
        std::string state = std::to_string(barrier.arrived) + " of " +
                            std::to_string(barrier.expected) + " have arrived";
        if (barrier.announced != 0) {
            state +=
                ", " + std::to_string(barrier.announced) + " will when their copies have landed";
        }
        if (barrier.expected_bytes != 0 || barrier.came_bytes() != 0) {
            state += "; " + std::to_string(barrier.came_bytes()) + " bytes came, " +
                     std::to_string(barrier.expected_bytes) + " are expected";
        }
        for (const auto& [thread, location] : barrier.waiting) {
            waiters.push_back({thread, "mbarrier_wait", location, state});
        }
    }
}

void mbarrier_init(uint64_t* address, int arrivals, SourceLocation location) {
    const Caller caller;
    touch(caller, address, AccessKind::store, location);
    caller.tells(&Observer::instruct, {"mbarrier_init", location, address, arrivals});
    MBarrier& made = caller.block.state<MBarriers>().at[address] = {};
    made.expected = static_cast<unsigned>(arrivals);
    caller.tells(&Observer::make_mbarrier, address);
}

void mbarrier_arrive(uint64_t* address, SourceLocation location) {
    arrive_expecting(0, "mbarrier_arrive", address, location);
}

void mbarrier_expect_tx(uint64_t* address, int bytes, SourceLocation location) {
    arrive_expecting(bytes, "mbarrier_expect_tx", address, location);
}

void cp_async_mbarrier_arrive(uint64_t* address, SourceLocation location) {
    const Caller caller;
    MBarrier& barrier = find(caller, "cp_async_mbarrier_arrive", address, location);
    caller.tells(&Observer::instruct, {"cp_async_mbarrier_arrive", location, address});
    caller.tells(&Observer::release, address, location);
    ++barrier.announced;
    announce_arrival(address);
    end_phase_if_due(address, barrier);
}

void mbarrier_wait(uint64_t* address, int parity, SourceLocation location) {
    const Caller caller;
    MBarrier& barrier = find(caller, "mbarrier_wait", address, location);
    const auto under_way = [&] { return static_cast<int>(barrier.phase & 1) == parity; };
    const int64_t phase = int64_t{barrier.phase} - (under_way() ? 0 : 1);
    caller.tells(&Observer::instruct, {"mbarrier_wait", location, address, phase});
    caller.tells(&Observer::await, address, phase, location);
    if (!under_way()) {
        caller.tells(&Observer::acquire, address);
    }
    while (under_way()) { // who waits acquires when the phase ends
        barrier.waiting.push_back({caller.thread.number, location});
        end_phase_if_due(address, barrier);
        caller.block.yield();
    }
}

int mbarrier_parity(const void* address) {
    const Caller caller;
    const auto& barriers = caller.block.state<MBarriers>().at;
    const auto found = barriers.find(address);
    return found == barriers.end() ? 0 : static_cast<int>(found->second.phase & 1);
}

void fence_mbarrier_init(SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"fence_mbarrier_init", location});
    caller.tells(&Observer::fence_mbarriers);
}

void begin_flight(BulkLoad&& load) {
    const Caller caller;
    MBarrier& barrier = find(caller, load.work.operation, load.mbarrier, load.work.location);
    caller.block.observers().tell(&Observer::start_load, load);
    if (options().cp_async == CpAsync::early) {
        land_load(load, barrier);
    } else {
        const void* const address = load.mbarrier;
        barrier.flying.push_back(std::move(load));
        end_phase_if_due(address, barrier);
    }
}

void arrive_for_copies(unsigned thread, const Announced& announced) {
    Block& block = current_block();
    MBarrier& barrier = block.state<MBarriers>().at.at(announced.mbarrier);
    block.observers().tell(&Observer::hand_on_copies, thread, announced.copies, announced.mbarrier);
    --barrier.announced;
    arrive(announced.mbarrier, barrier);
}

} // namespace flash::simt
