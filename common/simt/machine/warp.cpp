// Meetings of lanes: each hands in its operand, the last one to arrive executes for all.
#include <bit>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
void warp_collective(Meeting meeting, const char* operation, uint32_t mask, void* operand, Combine combine, Site site) {
    const RuntimeCode runtime;
    current_block().collective(meeting, operation, site, mask, operand, combine);
}

int block_barrier(const char* operation, bool predicate, Site site) {
    const RuntimeCode runtime;
    return current_block().barrier(operation, site, predicate);
}

void Block::stop_unnamed(const char* operation, Site site) {
    Fault fault(FaultKind::divergent_barrier, "lane " + std::to_string(current_->number % 32) + " calls " + operation +
                                                  " with a mask that does not name it");
    fault.where = here("calls it", site);
    stop(std::move(fault));
}

void Block::stop_divergent(const char* operation, Site site, const Rendezvous& meeting) {
    Fault fault(FaultKind::divergent_barrier, "lanes of one warp that must meet are at different places");
    fault.where = here(std::string("calls ") + operation, site);
    const unsigned first = current_->number / 32 * 32 + static_cast<unsigned>(std::countr_zero(meeting.arrived));
    fault.has_other = true;
    fault.other = {dim3(index_), dim3(threads_[first].index), std::string("waits in ") + meeting.operation,
                   Origin::of(meeting.site)};
    stop(std::move(fault));
}

void Block::complete(unsigned warp_number, size_t slot) {
    Warp& warp = warps_[warp_number];
    const Rendezvous meeting = warp.pending[slot];
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(slot));
    if (meeting.combine != nullptr) {
        meeting.combine(warp.operands, meeting.arrived);
    }
    for (Observer* const observer : observers_) {
        if (meeting.arrived == warp.alive) {
            observer->warp_together(warp_number);
        }
        observer->meet(meeting.kind, warp_number, meeting.arrived, meeting.site);
    }
    release(warp_number, meeting.arrived);
}

} // namespace flash::simt
