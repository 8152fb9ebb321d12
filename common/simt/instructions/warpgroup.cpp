#include "common/simt/instructions/warpgroup.hpp"

#include <algorithm>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

/// One more arrival; true when it was the last of those expected, and all may go on.
bool arrive(const Caller& caller, int id, int threads, const char* operation,
            SourceLocation location) {
    Block& block = caller.block;
    const auto form = [&] {
        return "barrier " + std::to_string(id) + " for " + std::to_string(threads) + " threads";
    };
    if (id < 1 || id > 15 || threads < 32 || threads % 32 != 0 ||
        static_cast<unsigned>(threads) > block.thread_count()) {
        block.refuse(FaultKind::divergent_barrier,
                     form() + ": named barriers are 1 to 15, for whole warps of the block",
                     operation, location);
    }
    NamedBarrier& barrier = block.state<NamedBarriers>().at[static_cast<size_t>(id)];
    if (barrier.arrived == 0) {
        barrier.expected = static_cast<unsigned>(threads);
        barrier.first = caller.thread.number;
        barrier.location = location;
        barrier.operation = operation;
    } else if (barrier.expected != static_cast<unsigned>(threads)) {
        block.stop({FaultKind::divergent_barrier,
                    form() + " and for " + std::to_string(barrier.expected),
                    block.here(std::string("calls ") + operation, location),
                    block.place(barrier.first, std::string("calls ") + barrier.operation,
                                LocationId::of(barrier.location))});
    }
    caller.tells(&Observer::instruct, {operation, location, &barrier, id});
    caller.tells(&Observer::release, &barrier, location);
    if (++barrier.arrived < barrier.expected) {
        return false;
    }
    barrier.arrived = 0;
    block.end_phase(&barrier, barrier.waiting);
    return true;
}

/// Gives registers to those who wait for them, in the order in which they came.
void hand_out(Registers& registers) {
    while (!registers.wanted.empty()) {
        const Registers::Wanted& first = registers.wanted.front();
        unsigned& own = registers.of_thread[first.warpgroup];
        const unsigned more = (first.registers - own) * 128;
        if (more > registers.free) {
            return;
        }
        registers.free -= more;
        own = first.registers;
        for (const WaitingThread& waiting : first.waiting) {
            current_block().release(waiting.thread);
        }
        registers.wanted.erase(registers.wanted.begin());
    }
}

struct RegistersCall {
    bool gives;
    unsigned wanted; // registers a thread
};

/// A warpgroup has come: it has so many registers a thread from now on, or waits for them.
void change_registers(unsigned first_thread, const WarpgroupOperands& operands,
                      SourceLocation location) {
    Registers& all = current_block().state<Registers>();
    unsigned& own = all.of_thread[first_thread / 128];
    const auto [gives, wanted] = *static_cast<const RegistersCall*>(operands[0]);
    if (wanted < 24 || wanted > 256 || wanted % 8 != 0 || (gives ? wanted > own : wanted < own)) {
        current_block().refuse(FaultKind::invalid_access,
                               std::to_string(wanted) +
                                   " registers a thread: setmaxnreg wants a multiple of 8 from 24 "
                                   "to 256, fewer than now to give and more than now to take",
                               gives ? "give_registers" : "take_registers", location);
    }
    if (gives) {
        all.free += (own - wanted) * 128;
        own = wanted;
    } else {
        all.wanted.push_back({first_thread / 128, wanted, {}});
    }
    hand_out(all);
}

} // namespace

void Registers::begin_block(unsigned threads) {
    // What the compiler gives each thread when the block may have all of them, as
    // __launch_bounds__(threads, 1) says.
    const unsigned each = std::min(256u, in_all / ((threads + 127) / 128 * 128) / 8 * 8);
    of_thread.fill(each);
    free = 0;
    wanted.clear();
}

void Registers::add_waiters(std::vector<Waiter>& waiters) const {
    for (const Wanted& one : wanted) {
        const unsigned own = of_thread[one.warpgroup];
        const std::string state = "from " + std::to_string(own) + " registers a thread to " +
                                  std::to_string(one.registers) + " takes " +
                                  std::to_string((one.registers - own) * 128) + ", and " +
                                  std::to_string(free) + " are free";
        for (const auto& [thread, location] : one.waiting) {
            waiters.push_back({thread, "take_registers", location, state});
        }
    }
}

void NamedBarriers::add_waiters(std::vector<Waiter>& waiters) const {
    for (size_t id = 0; id < at.size(); ++id) {
        const std::string state = "barrier " + std::to_string(id) + ": " +
                                  std::to_string(at[id].arrived) + " of " +
                                  std::to_string(at[id].expected) + " have come";
        for (const auto& [thread, location] : at[id].waiting) {
            waiters.push_back({thread, "named_barrier_sync", location, state});
        }
    }
}

void named_barrier_sync(int id, int threads, SourceLocation location) {
    const Caller caller;
    if (arrive(caller, id, threads, "named_barrier_sync", location)) {
        caller.tells(&Observer::acquire,
                     &caller.block.state<NamedBarriers>().at[static_cast<size_t>(id)]);
        caller.block.release(caller.thread.number); // whose turn it is, the schedule says
    } else {
        caller.block.state<NamedBarriers>().at[static_cast<size_t>(id)].waiting.push_back(
            {caller.thread.number, location});
    }
    caller.block.yield();
}

void named_barrier_arrive(int id, int threads, SourceLocation location) {
    arrive(Caller(), id, threads, "named_barrier_arrive", location);
}

void set_registers(bool gives, unsigned registers, SourceLocation location) {
    const Caller caller;
    RegistersCall call{gives, registers};
    const char* const operation = gives ? "give_registers" : "take_registers";
    caller.tells(&Observer::instruct, {operation, location, nullptr, registers});
    caller.block.meet_warpgroup(operation, location, &call, change_registers);
    Registers& all = caller.block.state<Registers>();
    const unsigned warpgroup = caller.thread.number / 128;
    while (all.of_thread[warpgroup] < registers) {
        std::ranges::find(all.wanted, warpgroup, &Registers::Wanted::warpgroup)
            ->waiting.push_back({caller.thread.number, location});
        caller.block.yield();
    }
}

} // namespace flash::simt
