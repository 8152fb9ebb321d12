#include "common/simt/machine/warpgroups.hpp"

#include <algorithm>
#include <utility>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/refuse.hpp"

namespace flash::simt {
namespace {

/// One more arrival; true when it was the last of those expected, and all may go on.
bool arrive(int id, int threads, const char* operation, Site site) {
    Block& block = current_block();
    if (id < 1 || id > 15 || threads < 32 || threads % 32 != 0 ||
        static_cast<unsigned>(threads) > block.thread_count()) {
        refuse(FaultKind::divergent_barrier,
               "barrier " + std::to_string(id) + " for " + std::to_string(threads) +
                   " threads: named barriers are 1 to 15, for whole warps of the block",
               operation, site);
    }
    NamedBarrier& barrier = block.named_barrier(id);
    const unsigned own = block.current().number;
    if (barrier.arrived == 0) {
        barrier.expected = static_cast<unsigned>(threads);
        barrier.first = own;
        barrier.site = site;
        barrier.operation = operation;
    } else if (barrier.expected != static_cast<unsigned>(threads)) {
        Fault fault(FaultKind::divergent_barrier, "barrier " + std::to_string(id) + " for " + std::to_string(threads) +
                                                      " threads and for " + std::to_string(barrier.expected));
        fault.where = block.here(std::string("calls ") + operation, site);
        fault.has_other = true;
        fault.other = {dim3(block.index()), dim3(block.thread(barrier.first).index),
                       std::string("calls ") + barrier.operation, Origin::of(barrier.site)};
        block.stop(std::move(fault));
    }
    for (Observer* const observer : block.observers()) {
        observer->release(own, &barrier);
    }
    if (++barrier.arrived < barrier.expected) {
        return false;
    }
    barrier.arrived = 0;
    for (Observer* const observer : block.observers()) {
        observer->end_phase(&barrier);
    }
    for (const WaitingThread& waiting : std::exchange(barrier.waiting, {})) {
        for (Observer* const observer : block.observers()) {
            observer->acquire(waiting.thread, &barrier);
        }
        block.release(waiting.thread);
    }
    return true;
}

/// Gives registers to those who wait for them, in the order in which they came.
void hand_out(Registers& registers) {
    Block& block = current_block();
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
            block.release(waiting.thread);
        }
        registers.wanted.erase(registers.wanted.begin());
    }
}

void check_registers(unsigned registers, bool enough, const char* operation, Site site) {
    if (registers < 24 || registers > 256 || registers % 8 != 0 || !enough) {
        refuse(FaultKind::invalid_access,
               std::to_string(registers) +
                   " registers a thread: setmaxnreg takes a multiple of 8 from 24 to 256, gives to have fewer and "
                   "takes to have more",
               operation, site);
    }
}

} // namespace

void Registers::reset(unsigned threads) {
    // What the compiler gives each thread when the block may have all of them, as __launch_bounds__(threads, 1) says.
    const unsigned each = std::min(256u, in_all / ((threads + 127) / 128 * 128) / 8 * 8);
    of_thread.fill(each);
    free = 0;
    wanted.clear();
}

void wait_at_named_barrier(int id, int threads, Site site) {
    const RuntimeCode runtime;
    Block& block = current_block();
    const unsigned own = block.current().number;
    if (arrive(id, threads, "named_barrier_sync", site)) {
        for (Observer* const observer : block.observers()) {
            observer->acquire(own, &block.named_barrier(id));
        }
        block.release(own); // whose turn it is, the schedule says
    } else {
        block.named_barrier(id).waiting.push_back({own, site});
    }
    block.yield();
}

void arrive_at_named_barrier(int id, int threads, Site site) {
    const RuntimeCode runtime;
    arrive(id, threads, "named_barrier_arrive", site);
}

void give_registers(unsigned registers, Site site) {
    const RuntimeCode runtime;
    current_block().meet_warpgroup("give_registers", site, &registers,
                                   [](unsigned first_thread, const WarpgroupOperands& operands, Site place) {
                                       Registers& all = current_block().registers();
                                       unsigned& own = all.of_thread[first_thread / 128];
                                       const unsigned wanted = *static_cast<const unsigned*>(operands[0]);
                                       check_registers(wanted, wanted <= own, "give_registers", place);
                                       all.free += (own - wanted) * 128;
                                       own = wanted;
                                       hand_out(all);
                                   });
}

void take_registers(unsigned registers, Site site) {
    const RuntimeCode runtime;
    Block& block = current_block();
    block.meet_warpgroup("take_registers", site, &registers,
                         [](unsigned first_thread, const WarpgroupOperands& operands, Site place) {
                             Registers& all = current_block().registers();
                             const unsigned wanted = *static_cast<const unsigned*>(operands[0]);
                             const unsigned own = all.of_thread[first_thread / 128];
                             check_registers(wanted, wanted >= own, "take_registers", place);
                             all.wanted.push_back({first_thread / 128, wanted, {}});
                             hand_out(all);
                         });
    Registers& all = block.registers();
    const unsigned own = block.current().number;
    while (all.of_thread[own / 128] < registers) {
        std::ranges::find(all.wanted, own / 128, &Registers::Wanted::warpgroup)->waiting.push_back({own, site});
        block.yield();
    }
}

void Block::meet_warpgroup(const char* operation, Site site, void* operand, WarpgroupCombine combine) {
    const unsigned first = current_->number / 128 * 128;
    if (first + 128 > thread_count_) {
        Fault fault(FaultKind::divergent_barrier, std::string(operation) +
                                                      " is for warpgroups of 128 threads, and the last ones of this "
                                                      "block are fewer");
        fault.where = here(std::string("calls ") + operation, site);
        stop(std::move(fault));
    }
    WarpgroupMeeting& meeting = warpgroups_[first / 128].meeting;
    if (meeting.arrived == 0) {
        meeting.operation = operation;
        meeting.site = site;
        meeting.combine = combine;
    } else if (!(meeting.site == site) || meeting.combine != combine) {
        unsigned other = first;
        while ((meeting.lanes[other % 128 / 32] >> other % 32 & 1) == 0) {
            ++other;
        }
        Fault fault(FaultKind::divergent_barrier, "threads of one warpgroup that must meet are at different places");
        fault.where = here(std::string("calls ") + operation, site);
        fault.has_other = true;
        fault.other = {dim3(index_), dim3(threads_[other].index), std::string("waits in ") + meeting.operation,
                       Origin::of(meeting.site)};
        stop(std::move(fault));
    }
    meeting.operands[current_->number - first] = operand;
    meeting.lanes[current_->number % 128 / 32] |= 1u << current_->number % 32;
    if (++meeting.arrived == 128) {
        for (unsigned warp = first / 32; warp < first / 32 + 4; ++warp) {
            for (Observer* const observer : observers_) {
                observer->warp_together(warp);
            }
            release(warp, ~0u);
        }
        meeting.arrived = 0;
        meeting.lanes = {};
        combine(first, meeting.operands, site);
    }
    yield();
}

} // namespace flash::simt
