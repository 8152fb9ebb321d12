// Meetings of lanes: each hands in its operand, the last one to arrive executes for all.
#include <bit>

#include "common/simt/machine/block.hpp"

namespace flash::simt {

void Block::stop_unnamed(const char* operation, Site site) {
    stop(
        {FaultKind::divergent_barrier,
         "lane " + std::to_string(current_->number % 32) + " calls " + operation + " with a mask that does not name it",
         here("calls it", site)});
}

void Block::stop_divergent(const char* operation, Site site, const Rendezvous& meeting) {
    const unsigned first = current_->number / 32 * 32 + static_cast<unsigned>(std::countr_zero(meeting.arrived));
    stop({FaultKind::divergent_barrier, "lanes of one warp that must meet are at different places",
          here(std::string("calls ") + operation, site),
          place(first, std::string("waits in ") + meeting.operation, Origin::of(meeting.site))});
}

void Block::complete(unsigned warp_number, size_t slot) {
    Warp& warp = warps_[warp_number];
    const Rendezvous meeting = warp.pending[slot];
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(slot));
    if (meeting.combine != nullptr) {
        meeting.combine(warp.operands, meeting.arrived);
    }
    if (meeting.arrived == warp.alive) {
        observers_.tell(&Observer::warp_together, warp_number);
    }
    observers_.tell(&Observer::meet, meeting.kind, warp_number, meeting.arrived, meeting.site);
    release(warp_number, meeting.arrived);
}

} // namespace flash::simt
