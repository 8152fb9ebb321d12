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

void warp_collective(const char* operation, uint32_t mask, void* operand, Combine combine, Site site) {
    current_block().collective(operation, site, mask, operand, combine);
}

int block_barrier(const char* operation, bool predicate, Site site) {
    return current_block().barrier(operation, site, predicate);
}

uint32_t vote(const char* operation, uint32_t mask, bool predicate, Site site) {
    Vote own{predicate, 0};
    warp_collective(
        operation, mask, &own,
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
        operation, mask, &own,
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

void Block::collective(const char* operation, Site site, uint32_t mask, void* operand, Combine combine) {
    Warp& warp = warps_[current_->number / 32];
    const unsigned lane = current_->number % 32;
    const uint32_t bit = 1u << lane;
    if ((mask & bit) == 0) {
        Fault fault(FaultKind::divergent_barrier, std::string(operation) + " is called by lane " +
                                                      std::to_string(lane) + ", which its mask does not name");
        fault.where = here(site);
        stop(std::move(fault));
    }
    size_t slot = 0;
    while (slot < warp.pending.size() && warp.pending[slot].mask != mask) {
        ++slot;
    }
    if (slot == warp.pending.size()) {
        warp.pending.push_back({mask, 0, operation, site, combine, {}});
    }
    Rendezvous& meeting = warp.pending[slot];
    if (!(meeting.site == site) || meeting.combine != combine) {
        const unsigned first = static_cast<unsigned>(std::countr_zero(meeting.arrived));
        Fault fault(FaultKind::divergent_barrier, "lanes of one warp that must meet are at different places: " +
                                                      std::string(operation) + " and " + meeting.operation);
        fault.where = here(site);
        fault.other = {dim3(threads_[current_->number / 32 * 32 + first].index), meeting.site.file, meeting.site.line};
        stop(std::move(fault));
    }
    meeting.arrived |= bit;
    meeting.operands[lane] = operand;
    if (meeting.arrived == (mask & warp.alive)) {
        complete(warp, slot);
    } else {
        wait_in({operation, site, mask});
    }
}

void Block::complete(Warp& warp, size_t rendezvous) {
    const Rendezvous meeting = warp.pending[rendezvous];
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(rendezvous));
    if (meeting.combine != nullptr) {
        meeting.combine(meeting.operands);
    }
    release(current_->number / 32, meeting.arrived);
}

} // namespace flash::simt
