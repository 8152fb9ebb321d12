// Warp collectives: lanes hand in their operands, the last one to arrive executes for all.
#include <algorithm>
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

template <class Use> void for_each_lane(uint32_t lanes, Use use) {
    for (; lanes != 0; lanes &= lanes - 1) {
        use(static_cast<size_t>(std::countr_zero(lanes)));
    }
}

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

[[gnu::always_inline]] inline void Block::collective(Meeting kind, const char* operation, Site site, uint32_t mask,
                                                     void* operand, Combine combine) {
    Warp& warp = warps_[current_->number / 32];
    const unsigned lane = current_->number % 32;
    if ((mask >> lane & 1) == 0) {
        stop_unnamed(operation, site);
    }
    auto meeting = std::ranges::find(warp.pending, mask, &Rendezvous::mask);
    if (meeting == warp.pending.end()) {
        meeting = warp.pending.insert(meeting, {kind, mask, 0, operation, site, combine});
    } else if (!(meeting->site == site) || meeting->combine != combine) {
        stop_divergent(operation, site, *meeting);
    }
    meeting->arrived |= 1u << lane;
    warp.operands[lane] = operand;
    if (meeting->arrived == (mask & warp.alive)) {
        complete(current_->number / 32, static_cast<size_t>(meeting - warp.pending.begin()));
    }
    yield();
}

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
    const RuntimeCode runtime;
    current_block().collective(
        Meeting::collective, operation, site, mask, &own, [](const Operands& operands, uint32_t lanes) {
            uint32_t bits = 0;
            for_each_lane(lanes, [&](size_t lane) {
                bits |= static_cast<const Vote*>(operands[lane])->predicate ? 1u << lane : 0;
            });
            for_each_lane(lanes, [&](size_t lane) { static_cast<Vote*>(operands[lane])->result = bits; });
        });
    return own.result;
}

uint64_t exchange(Shuffle kind, uint32_t mask, uint64_t bits, int argument, int width, Site site) {
    constexpr const char* names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"};
    Block& block = current_block();
    const int lane = static_cast<int>(block.current().number % 32);
    Exchange own{bits, source_lane(kind, lane, argument, width), 0};
    const RuntimeCode runtime;
    block.collective(Meeting::collective, names[static_cast<int>(kind)], site, mask, &own,
                     [](const Operands& operands, uint32_t lanes) {
                         for_each_lane(lanes, [&](size_t own_lane) {
                             auto& receiver = *static_cast<Exchange*>(operands[own_lane]);
                             const auto source = static_cast<size_t>(receiver.source) % 32;
                             // A lane that takes no part has nothing to give; on a GPU the value is undefined.
                             const bool gives = (lanes >> source & 1) != 0;
                             receiver.result =
                                 gives ? static_cast<const Exchange*>(operands[source])->bits : ~uint64_t{0};
                         });
                     });
    return own.result;
}

uint32_t active_mask() {
    // Fibers run one lane at a time, so only this is certain; kernels must name the lanes that they mean.
    return 1u << current_block().current().number % 32;
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
    if (Watcher* const watcher = watching_) {
        if (meeting.kind == Meeting::sync) {
            watcher->sync_warp(warp_number, meeting.arrived);
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
