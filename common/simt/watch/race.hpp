// Which accesses of memory are ordered, and which race.
//
// A race is two accesses of the same bytes by different threads, at least one a write and not both
// atomic, that nothing orders. __syncthreads begins a new epoch: accesses in different epochs of a
// block are ordered. Within an epoch it takes __syncwarp or an mbarrier (clocks.hpp). The threads
// of different blocks are ordered by fences and strong accesses (signals.hpp); and where one block
// has waited at a semaphore to which the other has added, all that the other did counts as before.
//
// Blocks take turns, and one may run while another one has come half its way. Each has an order of
// its own; what they did to global memory, they remember in common (Past).
//
// cp.async, TMA and wgmma begin after what their threads know, and end on a channel (clocks.hpp),
// over epochs as well.
//
// Neighbouring bytes have the same past, as a rule: a thread reads a row, then the next thread
// reads it. So the pasts are numbered, and what is remembered of four bytes is two numbers. The
// same access leads from the same number to the same next one, and most accesses are therefore one
// look at a small table (Order::recall).
//
// Shared memory is read again and again, after each barrier by the same threads in the same order.
// What they have read since the last barrier is told relative to it (EpochReads), and has the same
// numbers in each epoch.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/simt/instructions/cp_async.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/instructions/wgmma.hpp"
#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/watch/clocks.hpp"

namespace flash::simt {

/// What is remembered of an access, or of those that several lanes of a warp made at the same
/// clock.
struct Trace {
    uint32_t block = 0; // counted over all launches; 0: no access
    uint32_t epoch = 0;
    uint32_t origin = 0;
    uint32_t lanes = 0;
    uint32_t clock = 0;
    uint32_t engine : 8 = 0; // a work's (cp.async, TMA, wgmma)
    uint32_t warp : 8 = 0;
    uint32_t atomic : 8 = 0; // an atomic operation
    uint32_t scope : 8 = 0;

    uint32_t work() const { return lanes; } // with `engine`: the number of the work
    friend bool operator==(const Trace&, const Trace&) = default;
};

/// Whether they may meet without being a race: atomic operations and volatile accesses.
inline bool may_meet(const Trace& a, const Trace& b) {
    return include_each_other(Scope{static_cast<uint8_t>(a.scope)}, a.block,
                              Scope{static_cast<uint8_t>(b.scope)}, b.block);
}

/// The thread that made it; of several lanes, the first.
inline unsigned thread_of(const Trace& trace) {
    return trace.warp * 32u + static_cast<unsigned>(std::countr_zero(trace.lanes));
}

/// Whether two accesses differ in their lanes alone.
inline bool alike(const Trace& a, const Trace& b) {
    return a.warp == b.warp && a.clock == b.clock && a.origin == b.origin && a.atomic == b.atomic &&
           a.scope == b.scope;
}

/// Reads and atomic operations since the last write.
struct History {
    Trace last;
    uint32_t more = 0;           // others in the epoch of the last one: a list in Order's pool
    uint32_t readers = 0;        // works that read: a list of ReaderList
    uint32_t readers_from = 0;   // epoch in which their block began
    uint32_t atomics = 0;        // whether there are atomic operations among them
    std::array<Trace, 2> others; // in other blocks of the launch; the latest first
    friend bool operator==(const History&, const History&) = default;
};

/// A warp's lanes read neighbouring cells, each its own. So that these have the same History, its
/// lanes are counted from one of them on, around the warp: the frame.
inline Trace into_frame(Trace trace, uint32_t frame) {
    trace.lanes = std::rotr(trace.lanes, static_cast<int>(frame));
    return trace;
}
inline Trace out_of_frame(Trace trace, uint32_t frame) {
    trace.lanes = std::rotl(trace.lanes, static_cast<int>(frame));
    return trace;
}

/// Four bytes of memory, or one when they are used apart: the number of its last write, and 32
/// times that of its History, plus the frame.
struct Cell {
    uint32_t write = 0;
    uint32_t since : 31 = 0;
    uint32_t apart : 1 = 0; // its other three bytes have cells of their own
    friend bool operator==(const Cell&, const Cell&) = default;
};
static_assert(sizeof(Cell) == 8);

/// Values with numbers; the empty one is 0. A value that was numbered before has that number again,
/// as a rule.
template <class T> class Interned {
  public:
    const T& operator[](uint32_t number) const { return all_[number]; }
    uint32_t count() const { return static_cast<uint32_t>(all_.size()); }

    uint32_t number(const T& value) {
        uint32_t& known = recent_[hash(value)];
        if (known == 0 || all_[known] != value) {
            known = count();
            all_.push_back(value);
        }
        return known;
    }

    /// Gives back all the values, and begins anew.
    std::vector<T> take() {
        recent_.fill(0);
        return std::exchange(all_, std::vector<T>(1));
    }

  private:
    static_assert(sizeof(T) % sizeof(uint32_t) == 0 && std::has_unique_object_representations_v<T>);

    static size_t hash(const T& value) {
        std::array<uint32_t, sizeof(T) / sizeof(uint32_t)> words;
        std::memcpy(words.data(), &value, sizeof value);
        uint64_t sum = 0;
        for (const uint32_t word : words) {
            sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        }
        return static_cast<size_t>(sum >> 52);
    }

    std::vector<T> all_ = std::vector<T>(1);
    std::array<uint32_t, 4096> recent_{}; // by hash
};

/// Writes with numbers. Those of a warp's lanes differ in the lowest bits.
class Writes {
  public:
    Trace operator[](uint32_t number) const {
        Trace write = all_[number / 32];
        if (write.block != 0 && write.engine == 0) {
            write.lanes = 1u << number % 32;
        }
        return write;
    }

    uint32_t number(Trace write) {
        const auto lane =
            write.engine == 0 ? static_cast<uint32_t>(std::countr_zero(write.lanes)) : 0;
        write.lanes = write.engine == 0 ? 0 : write.lanes;
        return all_.number(write) * 32 + lane;
    }

    /// From here on there are the numbers of writes to come.
    uint32_t end() const { return all_.count() * 32; }
    uint32_t count() const { return all_.count(); }

    /// By their numbers / 32, without the lanes.
    Interned<Trace>& all() { return all_; }

  private:
    Interned<Trace> all_;
};

/// Neighbouring cells are alike, as a rule. What was done with one, which nothing but the cell
/// decides, is done with the next one by a copy.
class CellMemo {
  public:
    template <class Use> void operator()(Cell& cell, Use use) {
        if (known_ && cell == before_) {
            cell = after_;
            return;
        }
        before_ = cell;
        use(cell);
        after_ = cell;
        known_ = true;
    }

  private:
    Cell before_, after_;
    bool known_ = false;
};

class Shadow;

/// Those of all global memory.
struct Shadows {
    std::mutex mutex;
    std::vector<Shadow*> all;

    /// Calls `use(cell)` with each cell.
    // returns how many words they have
    template <class Use> size_t visit(Use use);
};

/// Cells for a range of memory; those that are never touched cost nothing.
class Shadow final : public Buffer::Notes {
  public:
    /// `list`: those of global memory, which this one joins; null for shared memory.
    Shadow(const char* begin, size_t bytes, Shadows* list = nullptr);
    ~Shadow() override;
    Shadow(const Shadow&) = delete;
    Shadow& operator=(const Shadow&) = delete;

    /// Calls `use(cell)` with each cell of an access, at an address that is a multiple of its size.
    template <class Use> void visit(const char* address, unsigned bytes, bool store, Use use) {
        size_t word = static_cast<size_t>(address - begin_) / 4;
        if (bytes < 4) {
            take_apart(word);
            const size_t first = reinterpret_cast<size_t>(address) % 4;
            for (size_t byte = first; byte < first + bytes; ++byte) {
                use(cells_[byte * words_ + word]);
            }
            return;
        }
        for (unsigned offset = 0; offset < bytes; offset += 4, ++word) {
            use(cells_[word]);
            if (cells_[word].apart != 0) [[unlikely]] {
                for (size_t byte = 1; byte < 4; ++byte) {
                    use(cells_[byte * words_ + word]);
                }
                cells_[word].apart = !store; // a whole word written is one again
            }
        }
    }

    /// Calls `use(cell)` with each cell.
    template <class Use> void visit(Use use) {
        for (size_t word = 0; word < words_; ++word) {
            const unsigned cells = cells_[word].apart != 0 ? 4 : 1;
            for (unsigned byte = 0; byte < cells; ++byte) {
                use(cells_[byte * words_ + word]);
            }
        }
    }

    size_t words() const { return words_; }

    void clear();

    Cell* cell(const char* address) const {
        return cells_ + static_cast<size_t>(address - begin_) / 4;
    }

    /// The cells of an access, if none of them is taken apart; else none.
    std::span<Cell> whole(const char* address, unsigned bytes) const {
        Cell* const first = cell(address);
        for (unsigned word = 0; word < bytes / 4; ++word) {
            if (first[word].apart != 0) {
                return {};
            }
        }
        return {first, bytes / 4};
    }

  private:
    void take_apart(size_t word) {
        if (cells_[word].apart == 0) {
            for (size_t byte = 1; byte < 4; ++byte) {
                cells_[byte * words_ + word] = cells_[word];
            }
            cells_[word].apart = 1;
        }
    }

    const char* begin_;
    size_t words_;
    Cell* cells_; // of the words, or their first bytes; then of all second bytes, and so on
    Shadows* list_;
};

template <class Use> size_t Shadows::visit(Use use) {
    const std::lock_guard lock(mutex);
    size_t words = 0;
    for (Shadow* const shadow : all) {
        shadow->visit(use);
        words += shadow->words();
    }
    return words;
}

/// What cp.async, TMA or a warp's tensor core does beside the threads.
struct Work {
    static constexpr uint32_t not_yet = ~uint32_t{0};
    enum Kind : uint8_t {
        // cp.async: to shared memory, where TMA and wgmma see it after a fence, like what its
        // thread writes
        copies,
        loads, // TMA to shared memory
        reads  // from shared memory
    };
    const char* operation = "";
    unsigned thread = 0; // that began it
    LocationId origin;
    uint32_t channel = 0;      // on which it ends,
    uint32_t number = not_yet; // and with which of its numbers
    Kind kind = reads;
};

/// A list of works that read. Equal lists have one number, so that memory that was read alike has
/// the same past.
struct ReaderList {
    uint32_t first = 0, count = 0; // works that read together
    uint32_t next = 0;             // where the list goes on; 0: it ends
    friend bool operator==(const ReaderList&, const ReaderList&) = default;
};

class Order;
class Block;

/// An access, and those before it in a list.
struct AccessNode {
    Trace trace;
    uint32_t next;
    friend bool operator==(const AccessNode&, const AccessNode&) = default;
};

/// What threads of a block have read of its shared memory since the last barrier. In its Trace, the
/// epoch and the block are 1, and the clock counts from the barrier. So the numbers of one epoch
/// mean the same in the next one.
struct EpochReads {
    Interned<History> histories;
    Interned<AccessNode> lists;
    uint32_t begin = 0; // a cell has 32 times the number of a History, its frame and this; a
                        // smaller one is none
};

/// What all blocks of the launch have done to global memory, and remember in common.
struct Past {
    Writes writes;
    Interned<History> histories;
    Signals signals;
    uint32_t epochs = 0, blocks = 0; // of all launches
    uint32_t first_block = 1;        // of this launch
    std::vector<uint3> begun;        // the launch's blocks
    bool any_signals = false;        // in this launch
    uint32_t old_writes = 0;         // numbers of writes before this launch, up to here
    size_t enough = 0;               // numbers, before those that no cell has are given up
    std::vector<Order*> orders;
    Shadows shadows;

    void begin_launch();
    Shadow* shadow_of(const Buffer& buffer);
    bool is_old(const Trace& trace) const { return trace.block < first_block; }
    uint3 index_of(const Trace& trace) const { return begun[trace.block - first_block]; }
};

/// The order of a block's accesses.
class Order {
  public:
    Order(Past& past, const Block& runner);
    ~Order();
    Order(const Order&) = delete;
    Order& operator=(const Order&) = delete;

    void begin_block(unsigned threads, uint3 index);
    void go_on();                             // other blocks have run meanwhile
    void barrier();                           // all threads of the block have met
    void meet(unsigned warp, uint32_t lanes); // of it
    Clocks& clocks() {
        change(); // whoever asks may change them
        return clocks_;
    }
    const Clocks& clocks() const { return clocks_; }

    /// An access that a thread makes now.
    Trace now(unsigned thread, LocationId origin, AccessKind kind,
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
    void begin_work(uint32_t number, const Work& work) {
        works_.resize(std::max<size_t>(works_.size(), number + 1));
        works_[number] = work;
    }
    void end_work(uint32_t work, uint32_t number) {
        works_[work].number = number;
        change();
    }
    const std::vector<Work>& works() const { return works_; }
    const Work& work(const Trace& trace) const { return works_[trace.work()]; }
    bool is_work(const Trace& trace, Work::Kind kind) const {
        return trace.engine != 0 && work(trace).kind == kind;
    }

    Past& past() { return past_; }

    // What the detector remembers of the block's shared memory.
    Shadow& dynamic_shadow() { return dynamic_shadow_; }
    Shadow& static_shadow() { return static_shadow_; }

    // `shared`: the cell is one of shared memory.
    Trace writer(const Cell& cell, bool shared) const {
        return (shared ? shared_writes_ : past_.writes)[cell.write & ~unsettled];
    }
    /// Where the thread that makes `now` has read the cell since it was written, by plain loads.
    std::vector<LocationId> own_loads(const Cell& cell, const Trace& now, bool shared) const;
    bool has_atomics(const Cell& cell, bool shared) const {
        return history(cell, shared).past.atomics != 0;
    }

    /// A write to shared memory by cp.async or TMA; a read is noted among the readers.
    void write_by(uint32_t work, Cell& cell) { write(cell, trace_of(work), true); }
    void read_by(uint32_t work, uint32_t count, Cell& cell);

    /// Whether all of a group of threads know of the last write, and, if a thread or its cp.async
    /// made it, whether it was fenced.
    bool knows_write(const Clocks::Knowledge& group, const Cell& cell) const;
    bool is_fenced(const Clocks::Knowledge& group, const Cell& cell) const;

    /// Blocks of the launch, in the order in which they ran: those up to whose last addition to a
    /// semaphore all is known.
    using Blocks = std::vector<bool>;

    /// What who waits for this block's addition knows: what this block does, and what was handed on
    /// before.
    Blocks handed_on(const Blocks& before) const;
    void learn(const Blocks& blocks);

    /// The last addition by another block to a place, if this block does not know of it.
    std::optional<Trace> unordered_addition(const Cell& cell) const;

    bool of_this_block(const Trace& trace) const { return trace.block == block_; }
    uint3 index_of(const Trace& trace) const { return past_.index_of(trace); }

    /// The block that has made an access, as long as it runs.
    const Block* running_block(const Trace& trace) const;

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

    /// The earlier access that an access at this moment races with, if any. `shared`: of shared
    /// memory, where what earlier blocks did is of no concern.
    struct Race {
        std::optional<Trace> other{};
        AccessKind kind = AccessKind::load; // of the other access
        // Why it may be none:
        enum Doubt : uint8_t {
            no,
            one_fence, // the one who wrote has handed it on, the one who reads has no fence
            strong     // both accesses may meet, but not both are atomic
        } doubt = no;
    };
    Race race(const Cell& cell, AccessKind kind, const Trace& now, bool shared);
    Race race_with_readers(const Cell& cell, AccessKind kind, const Trace& now, bool shared,
                           Race found);
    void remember(Cell& cell, AccessKind kind, const Trace& now, bool shared);

    /// A load by a thread at a line, to be recalled.
    struct Load {
        uint64_t bits; // its warp's
        uint32_t lane;
        bool shared;
        Load(unsigned thread, LocationId origin, bool is_shared)
            : bits(uint64_t{origin.number()} | uint64_t{thread / 32} << 32 |
                   uint64_t{is_shared} << 38),
              lane(thread % 32), shared(is_shared) {}
    };

    /// Whether the load does to this cell what its warp has done at this line to a cell with the
    /// same past, seen from the lane, since anything else happened. Then that is done.
    bool recall(Cell& cell, Load load) const {
        const Numbers& numbers = numbers_[load.shared];
        const uint64_t bits = bits_of(load);
        const uint32_t write = numbers.standing(cell.write);
        const uint32_t since = seen_from(load.lane, numbers.since(cell));
        const Step& known = steps_[place(bits, since)];
        if (known.load != bits || known.moment != numbers.moment || known.write != write ||
            known.since != since) {
            return false;
        }
        cell.since = (seen_from(0u - load.lane, known.to) + numbers.reads) & ~unsettled;
        return true;
    }
    void learn(const Cell& before, const Cell& after, Load load, const Trace& now) {
        const Numbers& numbers = numbers_[load.shared];
        Trace wrote = writer(before, load.shared);
        if (wrote.engine == 0 && !past_.is_old(wrote)) {
            wrote.lanes = ~0u >> (32 - std::min(32u, threads_ - wrote.warp * 32));
        }
        if (((before.since | after.since) & lasting) == 0 && ordered(wrote, now, load.shared)) {
            const uint64_t bits = bits_of(load);
            const uint32_t since = seen_from(load.lane, numbers.since(before));
            steps_[place(bits, since)] = {bits, numbers.moment, numbers.standing(before.write),
                                          since, seen_from(load.lane, numbers.since(after))};
        }
    }

    /// Whether nothing that may matter was done with a cell since a write that is over.
    bool is_over(const Cell& cell, bool shared) const {
        const Numbers& numbers = numbers_[shared];
        return (shared ? (cell.since & lasting) == 0 && numbers.since(cell) == 0
                       : cell.since == 0) &&
               numbers.standing(cell.write) <= settled;
    }
    /// The number of a write by a thread now; 0 where it has to be looked for.
    uint32_t number_of_write(unsigned thread, LocationId origin, bool shared) {
        const uint64_t bits = Load(thread, origin, shared).bits;
        KnownWrite& known = known_writes_[(bits ^ bits >> 32) % known_writes_.size()];
        if (!lanes_alike_) {
            return 0;
        }
        if (known.bits != bits || known.epoch != epoch_ || known.clock != clocks_.clock(thread)) {
            const Trace now = this->now(thread, origin, AccessKind::store);
            known = {bits, epoch_, now.clock,
                     (shared ? shared_writes_ : past_.writes).number(now) & ~31u};
        }
        return known.number + thread % 32;
    }

  private:
    struct Step {
        uint64_t load = 0;
        uint32_t moment = 0, write = 0, since = 0, to = 0;
    };
    struct KnownWrite {
        uint64_t bits = 0;
        uint32_t epoch = 0, clock = 0, number = 0;
    };
    static constexpr uint32_t unsettled = 0x80000000u; // in a write's number: not of a thread alone
    static constexpr uint32_t settled = 1, long_ago = 0;
    // in the number of a History of shared memory: it is not of this epoch alone
    static constexpr uint32_t lasting = 1u << 30;

    /// How what cells have is to be taken now, in global or in shared memory.
    struct Numbers {
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
    uint64_t bits_of(Load load) const {
        return load.bits | (lanes_alike_ ? 0 : uint64_t{load.lane + 1} << 40);
    }
    /// The number of a History whose frame is counted from a lane on.
    static uint32_t seen_from(uint32_t lane, uint32_t since) {
        return since == 0 ? 0 : (since & ~31u) | ((since - lane) & 31);
    }
    void change() {
        numbers_[false].moment = numbers_[true].moment = next_moment();
        lanes_alike_ = false;
    }
    uint32_t next_moment() {
        if (++moments_ == 0) { // the numbers begin anew
            std::ranges::fill(steps_, Step());
            meetings_.clear();
            epoch_moment_ = ++moments_;
            ++moments_;
        }
        return moments_;
    }

    struct Framed {
        const History& past;
        uint32_t frame;
    };

    /// What was read of a cell since it was written, as far as it may matter.
    Framed history(const Cell& cell, bool shared) const {
        if (!shared) {
            const uint32_t since = cell.since;
            return {past_.histories[since / 32], since % 32};
        }
        if ((cell.since & lasting) == 0) {
            const uint32_t since = numbers_[true].since(cell);
            return {reads_.histories[since / 32], since % 32};
        }
        const History& known = lasting_[cell.since & ~lasting];
        return {known.readers_from == block_begin_ ? known : reads_.histories[0], 0};
    }

    /// Whether its Trace are told relative to the epoch.
    static bool is_relative(const History& past, bool shared) {
        return shared && past.readers == 0;
    }
    Trace relative(Trace trace) const {
        trace.block = trace.epoch = 1;
        trace.clock -= epoch_clock_;
        return trace;
    }
    Trace absolute(Trace trace) const {
        if (trace.block != 0) {
            trace.block = block_;
            trace.epoch = epoch_;
            trace.clock += epoch_clock_;
        }
        return trace;
    }

    void write(Cell& cell, const Trace& by, bool shared) {
        cell.since = 0;
        cell.write =
            (shared ? shared_writes_ : past_.writes).number(by) | (by.engine != 0 ? unsettled : 0);
    }
    /// That of works has no frame but 0.
    void set_since(Cell& cell, const History& past, bool shared, uint32_t frame) {
        const uint32_t number = !shared ? past_.histories.number(past) * 32 + frame
                                : past.readers == 0
                                    ? reads_.begin + reads_.histories.number(past) * 32 + frame
                                    : lasting_.number(past) | lasting;
        cell.since = number & ~unsettled;
    }
    void begin_shared_memory();
    void begin_reads();
    void forget_old();
    Signals& signals_at(bool shared) { return shared ? own_signals_ : past_.signals; }
    uint32_t readers(const History& past) const {
        return past.readers_from == block_begin_ ? past.readers : 0;
    }
    uint32_t with_readers(uint32_t list, uint32_t work, uint32_t count);

    /// When it is over, for the clocks: the thread or channel, and its clock or number there.
    std::pair<size_t, uint32_t> moment_of(const Trace& trace) const {
        return trace.engine != 0
                   ? std::pair<size_t, uint32_t>(work(trace).channel, work(trace).number)
                   : std::pair<size_t, uint32_t>(thread_of(trace), trace.clock);
    }
    Trace trace_of(uint32_t work) const {
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
    bool ordered(const Trace& before, const Trace& now, bool shared) const;
    [[gnu::noinline]] bool ordered_by_signals(const Trace& before, const Trace& now) const;
    Race::Doubt doubt_of(const Trace& before, const Trace& now) const;
    bool worse(Race& found, const Trace& before, AccessKind before_kind, AccessKind kind,
               const Trace& now, bool shared) const;
    bool known(const Trace& before) const;
    void add_block(History& history, const Trace& now, uint32_t frame) const;
    void add(History& history, const Trace& now, bool shared, uint32_t frame);
    void add_other(History& history, const Trace& now, bool shared);
    const AccessNode& in_list(uint32_t number, bool relative) const {
        return relative ? reads_.lists[number] : pool_[number];
    }
    uint32_t add_to_list(const AccessNode& first, bool relative);

    Past& past_;
    const Block& runner_;
    Shadow dynamic_shadow_, static_shadow_;
    std::array<Numbers, 2> numbers_; // of global memory, of shared
    std::vector<Step> steps_ = std::vector<Step>(1 << 14);
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
    uint32_t block_ = 0;
    uint32_t epoch_ = 0;
    uint32_t block_begin_ = 0; // epoch
    Blocks known_;
    Signals own_signals_; // in shared memory
    // what each thread has found at a place, and knows since a fence
    struct Acquired {
        const void* address;
        SignalList all; // null when its fence was for the block alone
    };
    std::vector<std::vector<Acquired>> acquired_;
    unsigned threads_ = 0;
    Clocks clocks_;
    std::vector<Work> works_; // of this block
    Interned<ReaderList> readers_;
    // of shared memory: who wrote it, who has read it in this epoch, and what works read
    Writes shared_writes_;
    EpochReads reads_;
    Interned<History> lasting_;
    // of this epoch; the first one is not used. Cells share lists, so they never change
    std::vector<AccessNode> pool_;
    std::vector<Trace> rewritten_;   // a list that add_other() writes anew
    std::vector<ReaderList> others_; // the same for with_readers()
};

inline bool Order::ordered(const Trace& before, const Trace& now, bool shared) const {
    if (before.engine != 0 && of_this_block(before)) [[unlikely]] {
        const Work& work = works_[before.work()];
        return clocks_.knows_end(thread_of(now), work.channel, work.number);
    }
    if (before.epoch != now.epoch) {
        return shared || of_this_block(before) || past_.is_old(before) || known(before) ||
               (past_.any_signals && ordered_by_signals(before, now));
    }
    const uint32_t others = before.warp == now.warp ? before.lanes & ~now.lanes : before.lanes;
    return others == 0 || clocks_.knows(thread_of(now), before.warp, others, before.clock);
}

inline Order::Race Order::race(const Cell& cell, AccessKind kind, const Trace& now, bool shared) {
    Race found;
    const Trace wrote = writer(cell, shared);
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

/// `now` is told in the History's frame.
inline void Order::add(History& history, const Trace& now, bool shared, uint32_t frame) {
    Trace& last = history.last;
    if (last.epoch != now.epoch) {
        if (!shared && (!of_this_block(last) || past_.any_signals)) {
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

inline void Order::remember(Cell& cell, AccessKind kind, const Trace& now, bool shared) {
    if (kind == AccessKind::store) {
        // All that came before is ordered before this, or it would have been a race: who races with
        // them later, races with this as well.
        write(cell, now, shared);
    } else {
        const Framed known = history(cell, shared);
        History past = known.past;
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
