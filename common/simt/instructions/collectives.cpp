#include "common/simt/instructions/collectives.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <string>
#include <vector>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/workforce.hpp"

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
    const char* operation;
    LocationId origin;
    bool replaces; // what the lane had: as a rule, a sum takes the result to what it has
};

template <class Use> void for_each_lane(uint32_t lanes, Use use) {
    for (; lanes != 0; lanes &= lanes - 1) {
        use(static_cast<size_t>(std::countr_zero(lanes)));
    }
}

/// The lane that `lane` reads from; a source outside its segment of `width` lanes means its own
/// value.
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
        // a lower segment may be read, a higher one not
        return source >= first + width ? lane : source;
    }
    }
}

/// A value that no lane had given, and that a shuffle has left in a thread's register.
struct Undefined {
    LocationId origin; // of the shuffle; empty: there is none
    const char* operation = "";
    unsigned thread = 0; // whose value was asked for
};

/// The undefined value that each thread may hold. It is no fault yet: in a sum by halves, lanes on
/// whose sums nobody waits may read anything. But a thread that writes after it may write it.
class UndefinedValues : public InstructionState {
  public:
    void begin_block(unsigned threads) override {
        values_.assign(threads, {});
        threads_ = 0;
    }

    bool any() const { return threads_ > 0; }
    const Undefined& of(unsigned thread) const { return values_[thread]; }

    void set(Block& block, unsigned thread, const Undefined& value) {
        const auto is_defined = [&] { return values_[thread].origin == LocationId(); };
        threads_ += is_defined() ? 1 : 0;
        values_[thread] = value;
        threads_ -= is_defined() ? 1 : 0;
        block.let_hear(any() ? this : nullptr);
    }

    /// Who has met others has done with what came before.
    void have_met(Block& block, unsigned warp, uint32_t lanes) override {
        for_each_lane(
            lanes, [&](size_t lane) { set(block, warp * 32 + static_cast<unsigned>(lane), {}); });
    }

    /// The current thread goes on with what it got from a lane that took no part in a shuffle.
    void has_written(Block& block, LocationId origin) override {
        const unsigned own = block.current().number;
        if (values_[own].origin == LocationId()) {
            return;
        }
        const RuntimeCode runtime;
        const Undefined undefined = values_[own];
        set(block, own, {});
        const std::string why = undefined.thread >= block.thread_count()
                                    ? "the block has no such thread"
                                : block.thread(undefined.thread).finished ? "it has left the kernel"
                                                                          : "it takes no part";
        block.report(
            {FaultKind::undefined_shuffle,
             "a shuffle reads the value of lane " + std::to_string(undefined.thread % 32) +
                 ", which gives none: " + why,
             block.place(own, "writes what may come from it", origin),
             block.place(own, std::string("has called ") + undefined.operation, undefined.origin),
             "all lanes whose values are read must take part: let them come, with a value that "
             "changes nothing"});
    }

  private:
    std::vector<Undefined> values_;
    unsigned threads_ = 0; // that hold one
};

/// Who takes the value of a lane that takes no part has an undefined one, and so has who takes that
/// from another lane.
[[gnu::cold, gnu::noinline]] void pass_undefined(const Operands& operands, uint32_t lanes) {
    Block& block = current_block();
    UndefinedValues& undefined = block.state<UndefinedValues>();
    const unsigned first = block.current().number / 32 * 32;
    std::array<Undefined, 32> before;
    for_each_lane(lanes, [&](size_t lane) {
        before[lane] = undefined.of(first + static_cast<unsigned>(lane));
    });
    for_each_lane(lanes, [&](size_t lane) {
        const auto& receiver = *static_cast<const Exchange*>(operands[lane]);
        const unsigned source = static_cast<unsigned>(receiver.source) % 32;
        const bool gives = (lanes >> source & 1) != 0;
        const Undefined got =
            gives ? before[source] : Undefined{receiver.origin, receiver.operation, first + source};
        const bool is_first = before[lane].origin == LocationId() && got.origin != LocationId();
        if (receiver.replaces || is_first) {
            undefined.set(block, first + static_cast<unsigned>(lane), got);
        }
    });
}

} // namespace

uint32_t vote(const char* operation, uint32_t mask, bool predicate, SourceLocation location) {
    Vote own{predicate, 0};
    const RuntimeCode runtime;
    current_block().collective(
        CollectiveKind::collective, operation, location, mask, &own,
        [](const Operands& operands, uint32_t lanes) {
            uint32_t bits = 0;
            for_each_lane(lanes, [&](size_t lane) {
                bits |= static_cast<const Vote*>(operands[lane])->predicate ? 1u << lane : 0;
            });
            for_each_lane(lanes,
                          [&](size_t lane) { static_cast<Vote*>(operands[lane])->result = bits; });
        });
    return own.result;
}

uint64_t exchange(Shuffle kind, uint32_t mask, uint64_t bits, int argument, int width,
                  SourceLocation location) {
    constexpr const char* names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                     "__shfl_xor_sync"};
    Block& block = current_block();
    const int lane = static_cast<int>(block.current().number % 32);
    const char* const name = names[static_cast<int>(kind)];
    const RuntimeCode runtime;
    Exchange own{.bits = bits,
                 .source = source_lane(kind, lane, argument, width),
                 .result = 0,
                 .operation = name,
                 .origin = LocationId::of(location).within(block.current().call),
                 .replaces = kind == Shuffle::index};
    block.collective(
        CollectiveKind::collective, name, location, mask, &own,
        [](const Operands& operands, uint32_t lanes) {
            bool all_give = true;
            for_each_lane(lanes, [&](size_t own_lane) {
                auto& receiver = *static_cast<Exchange*>(operands[own_lane]);
                const auto source = static_cast<size_t>(receiver.source) % 32;
                // A lane that takes no part has nothing to give; on a GPU the value is
                // undefined.
                const bool gives = (lanes >> source & 1) != 0;
                all_give = all_give && gives;
                receiver.result =
                    gives ? static_cast<const Exchange*>(operands[source])->bits : ~uint64_t{0};
            });
            if (!options().detect) {
                return;
            }
            if (!all_give || current_block().state<UndefinedValues>().any()) [[unlikely]] {
                pass_undefined(operands, lanes);
            }
        });
    return own.result;
}

void sync_grid(SourceLocation location) {
    const Caller caller;
    Block& block = caller.block;
    const uint64_t blocks = volume(block.launch().grid);
    if (const uint64_t most = resident_blocks(block.launch(), block.kernel()); blocks > most) {
        block.refuse(FaultKind::deadlock,
                     "deadlock: " + plural(blocks, "block") +
                         " wait for each other, and the device holds " + std::to_string(most) +
                         " at once",
                     "grid.sync", location);
    }
    block.barrier("grid.sync", location, false);
    if (caller.thread.number == block.first_alive()) {
        std::atomic<uint64_t>& arrivals = workforce().arrivals;
        const auto tell_arrival = [&](bool writes) {
            caller.tells(&Observer::strong_read, &arrivals, Scope::device);
            if (writes) {
                caller.tells(&Observer::strong_write, &arrivals, Scope::device, false);
            }
        };
        caller.tells(&Observer::fence, Scope::device);
        tell_arrival(true);
        const uint64_t all = (arrivals++ / blocks + 1) * blocks;
        while (arrivals < all) {
            block.look(&arrivals, arrivals, LocationId::of(location));
        }
        tell_arrival(false);
        caller.tells(&Observer::fence, Scope::device);
    }
    block.barrier("grid.sync", location, false);
}

} // namespace flash::simt

using namespace flash::simt;

void __syncthreads(SourceLocation location) {
    const RuntimeCode runtime;
    current_block().barrier("__syncthreads", location, false);
}

int __syncthreads_or(int predicate, SourceLocation location) {
    const RuntimeCode runtime;
    return current_block().barrier("__syncthreads_or", location, predicate != 0) != 0;
}

int __syncthreads_and(int predicate, SourceLocation location) {
    const RuntimeCode runtime;
    return current_block().barrier("__syncthreads_and", location, predicate == 0) == 0;
}

int __syncthreads_count(int predicate, SourceLocation location) {
    const RuntimeCode runtime;
    return current_block().barrier("__syncthreads_count", location, predicate != 0);
}

void __syncwarp(unsigned mask, SourceLocation location) {
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::sync, "__syncwarp", location, mask, nullptr,
                               nullptr);
}
