// Which accesses of memory are ordered, and which race.
//
// A race is two accesses of the same bytes by different threads, at least one a write and not both
// atomic, that nothing orders. __syncthreads begins a new epoch: accesses in different epochs of a
// block are ordered. Within an epoch it takes __syncwarp or an mbarrier (clocks.hpp). The threads
// of different blocks are ordered by fences and strong accesses (signals.hpp); and where one block
// has waited at a semaphore to which the other has added, all that the other did counts as before.
// cp.async, TMA and wgmma begin after what their threads know, and end on a channel (clocks.hpp),
// over epochs as well.
//
// Blocks take turns, and one may run while another one has come half its way. Each has an order of
// its own; what they did to global memory, they remember in common (GlobalPast).
//
// What an access is: access.hpp. What is remembered: history.hpp. How that is made fast, each
// class has at its end: the same access leads from a numbered past (numbered.hpp) to the same next
// one, and most accesses are one look at a small table (RaceDetector::recall). Shared memory is
// read again and again, after each barrier by the same threads in the same order; so what they have
// read since the last barrier is told relative to it (EpochReads), and has the same numbers in each
// epoch.
//
// The tests have a detector that does without all that, and agrees with this one
// (common/tests/simt/reference_detector.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/simt/instructions/cp_async.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/instructions/wgmma.hpp"
#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/observers/access.hpp"
#include "common/simt/observers/clocks.hpp"
#include "common/simt/observers/history.hpp"
#include "common/simt/observers/numbered.hpp"

namespace flash::simt {

class RaceDetector;
class Block;

/// What all blocks of the launch have done to global memory, and remember in common.
struct GlobalPast {
    Writes writes;
    Interned<Reads> histories;
    Signals signals;
    uint32_t epochs = 0, blocks = 0;      // of all launches
    uint32_t first_block = 1;             // of this launch
    std::vector<uint3> begun;             // the launch's blocks, as they began
    bool any_signals = false;             // in this launch
    uint32_t old_writes = 0;              // numbers of writes before this launch, up to here
    size_t enough = 0;                    // numbers, before those that no cell has are given up
    std::vector<RaceDetector*> detectors; // of workers
    Shadows shadows;

    void begin_launch();
    Shadow* shadow_of(const Buffer& buffer);
    /// What this launch has done to memory, for the order of streams. Only what it has touched is
    /// visited.
    void tell_touches();
    bool is_old(const Access& access) const { return access.block < first_block; }
    uint3 index_of(const Access& access) const { return begun[access.block - first_block]; }
};

/// Finds the races of one block after the other.
class RaceDetector {
  public:
    RaceDetector(GlobalPast& past, const Block& runner);
    ~RaceDetector();
    RaceDetector(const RaceDetector&) = delete;
    RaceDetector& operator=(const RaceDetector&) = delete;

    void begin_block(unsigned threads, uint3 index);
    void go_on(); // other blocks have run meanwhile

    GlobalPast& past() { return past_; }
    bool of_this_block(const Access& access) const { return access.block == block_; }
    uint3 index_of(const Access& access) const { return past_.index_of(access); }

    /// The block that has made an access, as long as it runs.
    const Block* running_block(const Access& access) const;

    // --- what an access is ---------------------------------------------------------------------

    /// An access that a thread makes now.
    Access now(unsigned thread, LocationId origin, AccessKind kind,
               Scope scope = Scope::weak) const {
        const bool atomic = kind == AccessKind::atomic;
        const Scope own = atomic && scope == Scope::weak ? Scope::device : scope;
        return {.block = block_,
                .epoch = epoch_,
                .origin = origin.number(),
                .lanes = 1u << thread % 32,
                .clock = clocks_.clock(thread),
                .engine = 0,
                .warp = thread / 32,
                .atomic = atomic,
                .scope = static_cast<uint32_t>(own)};
    }

    /// Works of cp.async, TMA and wgmma, by their numbers.
    void begin_work(uint32_t number, const EngineWork& work) {
        works_.resize(std::max<size_t>(works_.size(), number + 1));
        works_[number] = work;
    }
    void end_work(uint32_t work, uint32_t number) {
        works_[work].number = number;
        change();
    }
    const std::vector<EngineWork>& works() const { return works_; }
    const EngineWork& work(const Access& access) const { return works_[access.work()]; }
    bool is_work(const Access& access, EngineWork::Kind kind) const {
        return access.engine != 0 && work(access).kind == kind;
    }

    // --- what orders two accesses --------------------------------------------------------------

    void barrier();                           // all threads of the block have met
    void meet(unsigned warp, uint32_t lanes); // of it
    Clocks& clocks() {
        change(); // whoever asks may change them
        return clocks_;
    }
    const Clocks& clocks() const { return clocks_; }

    // What a thread does by strong accesses and fences. `shared`: in shared memory.
    void strong_read(unsigned thread, const void* address, Scope scope, bool shared);
    void strong_write(unsigned thread, const void* address, Scope scope, bool replaces,
                      bool shared);
    void fence(unsigned thread, Scope scope);
    /// Whether the thread has read at this address what a fence would let it know, and what it
    /// does not know yet; and whether there was such a fence.
    bool would_learn(unsigned thread, const void* address) const;
    bool has_acquired(unsigned thread, const void* address) const {
        return std::ranges::count(acquired_[thread], address, &Acquired::address) != 0;
    }

    /// Blocks of the launch, in the order in which they ran: those up to whose last addition to a
    /// semaphore all is known.
    using Blocks = std::vector<bool>;

    /// What who waits for this block's addition knows: what this block does, and what was handed on
    /// before.
    Blocks handed_on(const Blocks& before) const;
    void learn(const Blocks& blocks);

    /// Whether all of a group of threads know of the last write, and, if a thread or its cp.async
    /// made it, whether it was fenced.
    bool knows_write(const Clocks::Knowledge& group, const Cell& cell) const;
    bool is_fenced(const Clocks::Knowledge& group, const Cell& cell) const;

    /// The earlier access that an access at this moment races with, if any. `shared`: of shared
    /// memory, where what earlier blocks did is of no concern.
    struct Race {
        std::optional<Access> other{};
        AccessKind kind = AccessKind::load; // of the other access
        // Why it may be none:
        enum Doubt : uint8_t {
            no,
            one_fence, // the one who wrote has handed it on, the one who reads has no fence
            strong     // both accesses may meet, but not both are atomic
        } doubt = no;
    };
    Race race(const Cell& cell, AccessKind kind, const Access& now, bool shared);
    Race race_with_readers(const Cell& cell, AccessKind kind, const Access& now, bool shared,
                           Race found);

    // --- what is remembered --------------------------------------------------------------------

    // What the detector remembers of the block's shared memory.
    Shadow& dynamic_shadow() { return dynamic_shadow_; }
    Shadow& static_shadow() { return static_shadow_; }

    // `shared`: the cell is one of shared memory.
    Access writer(const Cell& cell, bool shared) const {
        return (shared ? shared_writes_ : past_.writes)[cell.write & ~unsettled];
    }
    /// Where the thread that makes `now` has read the cell since it was written, by plain loads.
    std::vector<LocationId> own_loads(const Cell& cell, const Access& now, bool shared) const;
    bool has_atomics(const Cell& cell, bool shared) const {
        return history(cell, shared).past.atomics != 0;
    }

    /// The last addition by another block to a place, if this block does not know of it.
    std::optional<Access> unordered_addition(const Cell& cell) const;

    void remember(Cell& cell, AccessKind kind, const Access& now, bool shared);

    /// A write to shared memory by cp.async or TMA; a read is noted among the readers.
    void write_by(uint32_t work, Cell& cell) { write(cell, access_of(work), true); }
    void read_by(uint32_t work, uint32_t count, Cell& cell);

    // --- what makes it fast --------------------------------------------------------------------

    /// A load by a thread at a line, to be recalled.
    struct LoadKey {
        uint64_t bits; // its warp's
        uint32_t lane;
        bool shared;
        LoadKey(unsigned thread, LocationId origin, bool is_shared)
            : bits(uint64_t{origin.number()} | uint64_t{thread / 32} << 32 |
                   uint64_t{is_shared} << 38),
              lane(thread % 32), shared(is_shared) {}
    };

    /// Whether the load does to this cell what its warp has done at this line to a cell with the
    /// same past, seen from the lane, since anything else happened. Then that is done.
    bool recall(Cell& cell, LoadKey load) const {
        const NumberRanges& numbers = ranges_[load.shared];
        const uint64_t bits = bits_of(load);
        const uint32_t write = numbers.standing(cell.write);
        const uint32_t since = seen_from(load.lane, numbers.since(cell));
        const KnownLoad& known = known_loads_[place(bits, since)];
        if (known.load != bits || known.moment != numbers.moment || known.write != write ||
            known.since != since) {
            return false;
        }
        cell.since = (seen_from(0u - load.lane, known.to) + numbers.reads) & ~unsettled;
        return true;
    }
    void learn(const Cell& before, const Cell& after, LoadKey load, const Access& now) {
        const NumberRanges& numbers = ranges_[load.shared];
        Access wrote = writer(before, load.shared);
        if (wrote.engine == 0 && !past_.is_old(wrote)) {
            wrote.lanes = ~0u >> (32 - std::min(32u, threads_ - wrote.warp * 32));
        }
        if (((before.since | after.since) & lasting) == 0 && ordered(wrote, now, load.shared)) {
            const uint64_t bits = bits_of(load);
            const uint32_t since = seen_from(load.lane, numbers.since(before));
            known_loads_[place(bits, since)] = {bits, numbers.moment,
                                                numbers.standing(before.write), since,
                                                seen_from(load.lane, numbers.since(after))};
        }
    }

    /// Whether nothing that may matter was done with a cell since a write that is over.
    bool is_over(const Cell& cell, bool shared) const {
        const NumberRanges& numbers = ranges_[shared];
        return (shared ? (cell.since & lasting) == 0 && numbers.since(cell) == 0
                       : cell.since == 0) &&
               numbers.standing(cell.write) <= settled;
    }
    /// The number of a write by a thread now; 0 where it has to be looked for.
    uint32_t number_of_write(unsigned thread, LocationId origin, bool shared) {
        const uint64_t bits = LoadKey(thread, origin, shared).bits;
        KnownWrite& known = known_writes_[(bits ^ bits >> 32) % known_writes_.size()];
        if (!lanes_alike_) {
            return 0;
        }
        if (known.bits != bits || known.epoch != epoch_ || known.clock != clocks_.clock(thread)) {
            const Access now = this->now(thread, origin, AccessKind::store);
            known = {bits, epoch_, now.clock,
                     (shared ? shared_writes_ : past_.writes).number(now) & ~31u};
        }
        return known.number + thread % 32;
    }

  private:
    // --- what orders two accesses --------------------------------------------------------------

    /// When it is over, for the clocks: the thread or channel, and its clock or number there.
    std::pair<size_t, uint32_t> moment_of(const Access& access) const {
        return access.engine != 0
                   ? std::pair<size_t, uint32_t>(work(access).channel, work(access).number)
                   : std::pair<size_t, uint32_t>(thread_of(access), access.clock);
    }
    bool ordered(const Access& before, const Access& now, bool shared) const;
    [[gnu::noinline]] bool ordered_by_signals(const Access& before, const Access& now) const;
    Race::Doubt doubt_of(const Access& before, const Access& now) const;
    bool worse(Race& found, const Access& before, AccessKind before_kind, AccessKind kind,
               const Access& now, bool shared) const;
    bool known(const Access& before) const;
    Signals& signals_at(bool shared) { return shared ? own_signals_ : past_.signals; }

    // --- what is remembered --------------------------------------------------------------------

    Access access_of(uint32_t work) const {
        return {.block = block_,
                .epoch = epoch_,
                .origin = works_[work].origin.number(),
                .lanes = work,
                .clock = 0,
                .engine = 1,
                .warp = works_[work].thread / 32,
                .atomic = 0,
                .scope = 0};
    }
    void write(Cell& cell, const Access& by, bool shared) {
        cell.since = 0;
        cell.write =
            (shared ? shared_writes_ : past_.writes).number(by) | (by.engine != 0 ? unsettled : 0);
    }
    /// That of works has no frame but 0.
    void set_since(Cell& cell, const Reads& past, bool shared, uint32_t frame) {
        const uint32_t number = !shared ? past_.histories.number(past) * 32 + frame
                                : past.readers == 0
                                    ? reads_.begin + reads_.histories.number(past) * 32 + frame
                                    : lasting_.number(past) | lasting;
        cell.since = number & ~unsettled;
    }
    void add_block(Reads& history, const Access& now, uint32_t frame) const;
    void add(Reads& history, const Access& now, bool shared, uint32_t frame);
    void add_other(Reads& history, const Access& now, bool shared);
    const ListedAccess& in_list(uint32_t number, bool relative) const {
        return relative ? reads_.lists[number] : pool_[number];
    }
    uint32_t add_to_list(const ListedAccess& first, bool relative);

    uint32_t with_readers(uint32_t list, uint32_t work, uint32_t count);

    // --- what makes it fast --------------------------------------------------------------------

    struct KnownLoad {
        uint64_t load = 0;
        uint32_t moment = 0, write = 0, since = 0, to = 0;
    };
    struct KnownWrite {
        uint64_t bits = 0;
        uint32_t epoch = 0, clock = 0, number = 0;
    };
    static constexpr uint32_t unsettled = 0x80000000u; // in a write's number: not of a thread alone
    static constexpr uint32_t settled = 1, long_ago = 0;
    // in the number of Reads of shared memory: they are not of this epoch alone
    static constexpr uint32_t lasting = 1u << 30;

    /// How what cells have is to be taken now, in global or in shared memory.
    struct NumberRanges {
        uint32_t block_writes = 0, epoch_writes = 0; // numbers of writes from their beginning on
        uint32_t old_writes = 0;                     // up to here, of no concern
        uint32_t reads = 0;                          // of EpochReads
        // counts whatever decides what an access does, but for the cell and the access
        uint32_t moment = 0;

        /// A write's number, and that of all which other lanes of its warp made alike. What threads
        /// of this block wrote before its last barrier is all one: ordered, and over. So is what
        /// was written before the block, or the launch.
        // Who gave way comes back to numbers that others have given meanwhile: go_on().
        uint32_t standing(uint32_t write) const {
            return write < old_writes                                   ? long_ago
                   : write - block_writes < epoch_writes - block_writes ? settled
                                                                        : write | 31;
        }
        uint32_t since(const Cell& cell) const {
            return cell.since - std::min(uint32_t{cell.since}, reads);
        }
    };

    static size_t place(uint64_t bits, uint32_t since) {
        return (static_cast<uint32_t>(bits ^ bits >> 27) + since) * 0x9e3779b1u >> 18;
    }
    /// A load is like those of the other lanes as long as all know the same.
    uint64_t bits_of(LoadKey load) const {
        return load.bits | (lanes_alike_ ? 0 : uint64_t{load.lane + 1} << 40);
    }
    /// The number of Reads whose frame is counted from a lane on.
    static uint32_t seen_from(uint32_t lane, uint32_t since) {
        return since == 0 ? 0 : (since & ~31u) | ((since - lane) & 31);
    }
    void change() {
        ranges_[false].moment = ranges_[true].moment = next_moment();
        lanes_alike_ = false;
    }
    uint32_t next_moment() {
        if (++moments_ == 0) { // the numbers begin anew
            std::ranges::fill(known_loads_, KnownLoad());
            meetings_.clear();
            epoch_moment_ = ++moments_;
            ++moments_;
        }
        return moments_;
    }

    struct Framed {
        const Reads& past;
        uint32_t frame;
    };

    /// What was read of a cell since it was written, as far as it may matter.
    Framed history(const Cell& cell, bool shared) const {
        if (!shared) {
            const uint32_t since = cell.since;
            return {past_.histories[since / 32], since % 32};
        }
        if ((cell.since & lasting) == 0) {
            const uint32_t since = ranges_[true].since(cell);
            return {reads_.histories[since / 32], since % 32};
        }
        const Reads& known = lasting_[cell.since & ~lasting];
        return {known.readers_from == block_begin_ ? known : reads_.histories[0], 0};
    }

    /// Whether its accesses are told relative to the epoch.
    static bool is_relative(const Reads& past, bool shared) { return shared && past.readers == 0; }
    Access relative(Access access) const {
        access.block = access.epoch = 1;
        access.clock -= epoch_clock_;
        return access;
    }
    Access absolute(Access access) const {
        if (access.block != 0) {
            access.block = block_;
            access.epoch = epoch_;
            access.clock += epoch_clock_;
        }
        return access;
    }

    void begin_shared_memory();
    void begin_reads();
    void forget_old();

    GlobalPast& past_;
    const Block& runner_;
    unsigned threads_ = 0;
    uint32_t block_ = 0;
    uint32_t epoch_ = 0;
    uint32_t block_begin_ = 0; // epoch

    // what orders two accesses
    Clocks clocks_;
    Blocks known_;
    Signals own_signals_; // in shared memory
    // what each thread has found at a place, and knows since a fence
    struct Acquired {
        const void* address;
        SignalList all; // null when its fence was for the block alone
    };
    std::vector<std::vector<Acquired>> acquired_;
    std::vector<EngineWork> works_; // of this block

    // what is remembered of shared memory: who wrote it, who has read it in this epoch, and what
    // works read
    Shadow dynamic_shadow_, static_shadow_;
    Writes shared_writes_;
    EpochReads reads_;
    Interned<Reads> lasting_;
    Interned<EngineReaders> readers_;
    // of this epoch; the first one is not used. Cells share lists, so they never change
    std::vector<ListedAccess> pool_;

    // what makes it fast
    std::array<NumberRanges, 2> ranges_; // of global memory, of shared
    std::vector<KnownLoad> known_loads_ = std::vector<KnownLoad>(1 << 14);
    std::array<KnownWrite, 64> known_writes_{};
    // All lanes of a warp know the same of others, and their clocks show the same.
    bool lanes_alike_ = false;
    uint32_t moments_ = 0;
    // of every epoch, before anything but barriers has ordered threads
    uint32_t epoch_moment_ = 0;
    uint32_t epoch_clock_ = 0; // of all threads, when it began
    // What warps have done since the barrier decides the moment: after the one that was before, the
    // warp and its lanes.
    std::map<std::tuple<uint32_t, unsigned, uint32_t>, uint32_t> meetings_;
    std::vector<Access> rewritten_;     // a list that add_other() writes anew
    std::vector<EngineReaders> others_; // the same for with_readers()
};

inline bool RaceDetector::ordered(const Access& before, const Access& now, bool shared) const {
    if (before.engine != 0 && of_this_block(before)) [[unlikely]] {
        const EngineWork& work = works_[before.work()];
        return clocks_.knows_end(thread_of(now), work.channel, work.number);
    }
    if (before.epoch != now.epoch) {
        return shared || of_this_block(before) || past_.is_old(before) || known(before) ||
               (past_.any_signals && ordered_by_signals(before, now));
    }
    const uint32_t others = before.warp == now.warp ? before.lanes & ~now.lanes : before.lanes;
    return others == 0 || clocks_.knows(thread_of(now), before.warp, others, before.clock);
}

inline RaceDetector::Race RaceDetector::race(const Cell& cell, AccessKind kind, const Access& now,
                                             bool shared) {
    Race found;
    const Access wrote = writer(cell, shared);
    if (!ordered(wrote, now, shared)) [[unlikely]] {
        found = {wrote, AccessKind::store, doubt_of(wrote, now)};
        if (found.doubt == Race::no) {
            return found;
        }
    }
    return kind == AccessKind::load && !has_atomics(cell, shared)
               ? found
               : race_with_readers(cell, kind, now, shared, found);
}

/// `now` is told in the frame of `history`.
inline void RaceDetector::add(Reads& history, const Access& now, bool shared, uint32_t frame) {
    Access& last = history.last;
    if (last.epoch != now.epoch) {
        if (!shared && (!of_this_block(last) || past_.any_signals || !stands_for(now, last))) {
            add_block(history, now, frame);
        }
        last = now;
        history.more = 0;
    } else if (alike(last, now)) {
        last.lanes |= now.lanes;
        if (history.more != 0) {
            add_other(history, now, shared);
        }
    } else {
        add_other(history, now, shared);
    }
}

inline void RaceDetector::remember(Cell& cell, AccessKind kind, const Access& now, bool shared) {
    if (kind == AccessKind::store) {
        // All that came before is ordered before this, or it would have been a race: who races with
        // them later, races with this as well.
        write(cell, now, shared);
    } else {
        const Framed known = history(cell, shared);
        Reads past = known.past;
        const bool is_first = past.last.block == 0 && past.readers == 0;
        const uint32_t frame =
            is_first ? static_cast<uint32_t>(std::countr_zero(now.lanes)) : known.frame;
        past.atomics |= kind == AccessKind::atomic ? 1 : 0;
        add(past, into_frame(is_relative(past, shared) ? relative(now) : now, frame), shared,
            frame);
        set_since(cell, past, shared, frame);
    }
}

} // namespace flash::simt
