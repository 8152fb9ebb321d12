// Warp collectives: lanes hand in their operands, the last one to arrive executes for all.
#include <bit>

#include "common/simt/block.hpp"

namespace flash::simt {
namespace {

struct Vote {
    bool predicate;
    uint32_t result;
};

struct Exchange {
    uint64_t bits;
    int source; // lane to take from
    uint64_t result;
};

/// The lane that `lane` reads from; a source outside its segment of `width` lanes means its own value.
int source_lane(Shuffle kind, int lane, int argument, int width) {
    const int first = lane & ~(width - 1);
    switch (kind) {
    case Shuffle::index:
        return first + (argument & (width - 1));
    case Shuffle::up:
        return lane - argument < first ? lane : lane - argument;
    case Shuffle::down:
        return lane + argument >= first + width ? lane : lane + argument;
    default: {
        const int source = lane ^ argument;
        return source >= first + width ? lane : source; // a lower segment may be read, a higher one not
    }
    }
}

} // namespace

void warp_collective(Meeting meeting, const char* operation, uint32_t mask, void* operand, Combine combine, Site site) {
    const RuntimeCode runtime;
    current_block().collective(meeting, operation, site, mask, operand, combine);
}

int block_barrier(const char* operation, bool predicate, Site site) {
    const RuntimeCode runtime;
    return current_block().barrier(operation, site, predicate);
}

uint32_t vote(const char* operation, uint32_t mask, bool predicate, Site site) {
    Vote own{predicate, 0};
    warp_collective(
        Meeting::collective, operation, mask, &own,
        [](const Operands& operands) {
            uint32_t bits = 0;
            for (size_t lane = 0; lane < 32; ++lane) {
                const auto* const operand = static_cast<Vote*>(operands[lane]);
                bits |= operand != nullptr && operand->predicate ? 1u << lane : 0;
            }
            for (void* const operand : operands) {
                if (operand != nullptr) {
                    static_cast<Vote*>(operand)->result = bits;
                }
            }
        },
        site);
    return own.result;
}

uint64_t shuffle(const char* operation, Shuffle kind, uint32_t mask, uint64_t bits, int argument, int width,
                 Site site) {
    const int lane = static_cast<int>(current_block().current().number % 32);
    Exchange own{bits, source_lane(kind, lane, argument, width), 0};
    warp_collective(
        Meeting::collective, operation, mask, &own,
        [](const Operands& operands) {
            for (void* const operand : operands) {
                if (operand != nullptr) {
                    auto& receiver = *static_cast<Exchange*>(operand);
                    const auto* const giver =
                        static_cast<Exchange*>(operands[static_cast<size_t>(receiver.source) % 32]);
                    // A lane that takes no part has nothing to give; on a GPU the value is undefined.
                    receiver.result = giver != nullptr ? giver->bits : ~uint64_t{0};
                }
            }
        },
        site);
    return own.result;
}

uint32_t active_mask() {
    // Fibers run one lane at a time, so only this is certain; kernels must name the lanes that they mean.
    return 1u << current_block().current().number % 32;
}

void Block::collective(Meeting kind, const char* operation, Site site, uint32_t mask, void* operand, Combine combine) {
    Warp& warp = warps_[current_->number / 32];
    const unsigned lane = current_->number % 32;
    if ((mask >> lane & 1) == 0) {
        Fault fault(FaultKind::divergent_barrier,
                    "lane " + std::to_string(lane) + " calls " + operation + " with a mask that does not name it");
        fault.where = here("calls it", site);
        stop(std::move(fault));
    }
    size_t slot = 0;
    while (slot < warp.pending.size() && warp.pending[slot].mask != mask) {
        ++slot;
    }
    if (slot == warp.pending.size()) {
        warp.pending.push_back({kind, mask, 0, operation, site, combine, {}});
    }
    Rendezvous& meeting = warp.pending[slot];
    if (!(meeting.site == site) || meeting.combine != combine) {
        Fault fault(FaultKind::divergent_barrier, "lanes of one warp that must meet are at different places");
        fault.where = here(std::string("calls ") + operation, site);
        const unsigned first = current_->number / 32 * 32 + static_cast<unsigned>(std::countr_zero(meeting.arrived));
        fault.has_other = true;
        fault.other = {dim3(index_), dim3(threads_[first].index), std::string("waits in ") + meeting.operation,
                       Origin::of(meeting.site)};
        stop(std::move(fault));
    }
    meeting.arrived |= 1u << lane;
    meeting.operands[lane] = operand;
    if (meeting.arrived == (mask & warp.alive)) {
        complete(current_->number / 32, slot);
    }
    wait_in({operation, site, mask}); // the last to come as well: whose turn it is, the schedule says
}

void Block::complete(unsigned warp_number, size_t slot) {
    Warp& warp = warps_[warp_number];
    const Rendezvous meeting = warp.pending[slot];
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(slot));
    if (meeting.combine != nullptr) {
        meeting.combine(meeting.operands);
    }
    if (Watcher* const watcher = watching_) {
        if (meeting.kind == Meeting::sync) {
            watcher->sync_warp(warp_number);
        }
        if (meeting.arrived == warp.alive) {
            watcher->warp_together(warp_number);
        }
        if (Counters* const counters = watcher->counters(meeting.site)) {
            ++(meeting.kind == Meeting::mma        ? counters->mma
               : meeting.kind == Meeting::ldmatrix ? counters->ldmatrix
                                                   : counters->collectives);
        }
    }
    release(warp_number, meeting.arrived);
}

} // namespace flash::simt
