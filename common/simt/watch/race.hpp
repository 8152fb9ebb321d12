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
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
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
};

/// Four bytes of memory, or one when they are used apart: the numbers of the Trace of its last
/// write and of its History.
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
        if (known == 0 || std::memcmp(&all_[known], &value, sizeof value) != 0) {
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

/// Cells for a range of memory; those that are never touched cost nothing.
class Shadow final : public Buffer::Notes {
  public:
    Shadow(const char* begin, size_t bytes);
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

    /// Calls `use(cell)` with each cell of each shadow that there is.
    // returns how many words they have
    static size_t visit_all(const std::function<void(Cell&)>& use);

    /// The cells of an access, if none of them is taken apart; else none.
    std::span<Cell> whole(const char* address, unsigned bytes) const {
        Cell* const first = cells_ + static_cast<size_t>(address - begin_) / 4;
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
};

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
};

class Order;
class Block;

/// What all blocks of the launch have done, and remember in common.
struct Past {
    Interned<Trace> writes;
    Interned<History> histories;
    Signals signals;
    uint32_t epochs = 0, blocks = 0; // of all launches
    uint32_t first_block = 1;        // of this launch
    std::vector<uint3> begun;        // the launch's blocks
    bool any_signals = false;        // in this launch
    size_t enough = 0;               // numbers, before those that no cell has are given up
    std::vector<Order*> orders;

    void begin_launch();
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
    void go_on();   // other blocks have run meanwhile
    void barrier(); // all threads of the block have met
    Clocks& clocks() {
        ++moment_; // whoever asks may change them
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
        ++moment_;
    }
    const std::vector<Work>& works() const { return works_; }
    const Work& work(const Trace& trace) const { return works_[trace.work()]; }
    bool is_work(const Trace& trace, Work::Kind kind) const {
        return trace.engine != 0 && work(trace).kind == kind;
    }

    const Trace& writer(const Cell& cell) const { return past_.writes[cell.write & ~unsettled]; }
    bool has_atomics(const Cell& cell) const { return past_.histories[cell.since].atomics != 0; }

    /// A write by cp.async or TMA; a read is noted among the readers.
    void write_by(uint32_t work, Cell& cell) { write(cell, trace_of(work)); }
    void read_by(uint32_t work, uint32_t count, Cell& cell) {
        History past = past_.histories[cell.since];
        past.readers = with_readers(readers(past), work, count);
        past.readers_from = block_begin_;
        set_since(cell, past);
    }

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
    const Trace* unordered_addition(const Cell& cell) const;

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
        const Trace* other = nullptr;
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
    void remember(Cell& cell, AccessKind kind, const Trace& now);

    /// A load by a thread at a line, to be recalled.
    struct Load {
        uint64_t bits;
        Load(unsigned thread, LocationId origin, bool shared)
            : bits(uint64_t{origin.number()} | uint64_t{thread} << 32 | uint64_t{shared} << 42) {}
    };

    /// Whether the load does to this cell what it has done to a cell with the same past, since
    /// anything else happened. Then that is done.
    bool recall(Cell& cell, Load load) const {
        const uint32_t write = standing(cell.write);
        const Step& known = steps_[place(load, cell.since)];
        if (known.load != load.bits || known.moment != moment_ || known.write != write ||
            known.since != cell.since) {
            return false;
        }
        cell.since = known.to;
        return true;
    }
    void learn(const Cell& before, const Cell& after, Load load) {
        const uint32_t write = standing(before.write);
        steps_[place(load, before.since)] = {load.bits, moment_, write, before.since, after.since};
    }

  private:
    struct Node {
        Trace trace;
        uint32_t next;
    };

    struct Step {
        uint64_t load = 0, moment = 0;
        uint32_t write = 0, since = 0, to = 0;
    };
    static constexpr uint32_t unsettled = 0x80000000u; // in a write's number: not of a thread alone
    static constexpr uint32_t settled = ~uint32_t{0};

    /// A write's number. What threads of this block wrote before its last barrier is all one:
    /// ordered, and over.
    // Who gave way comes back to numbers that others have given meanwhile: go_on().
    uint32_t standing(uint32_t write) const {
        return write - block_writes_ < epoch_writes_ - block_writes_ ? settled : write;
    }
    static size_t place(Load load, uint32_t since) {
        return (static_cast<uint32_t>(load.bits) + since) * 0x9e3779b1u >> 22;
    }

    void write(Cell& cell, const Trace& by) {
        cell.since = 0;
        cell.write = past_.writes.number(by) | (by.engine != 0 ? unsettled : 0);
    }
    void set_since(Cell& cell, const History& past) {
        cell.since = past_.histories.number(past) & ~unsettled;
    }
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
    void add_block(History& history, const Trace& now) const;
    void add(History& history, const Trace& now);
    void add_other(History& history, const Trace& now);

    Past& past_;
    const Block& runner_;
    uint32_t block_writes_ = 1, epoch_writes_ = 1; // the numbers of writes from their beginning on
    std::array<Step, 1024> steps_{};
    // counts whatever decides what an access does, but for the cell and the access
    uint64_t moment_ = 1;
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
    Trace reader_; // the work that race() found
    // of this epoch; the first one is not used. Cells share lists, so they never change
    std::vector<Node> pool_;
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
    if (!ordered(writer(cell), now, shared)) [[unlikely]] {
        found = {&writer(cell), AccessKind::store, doubt_of(writer(cell), now)};
        if (found.doubt == Race::no) {
            return found;
        }
    }
    return kind == AccessKind::load && !has_atomics(cell)
               ? found
               : race_with_readers(cell, kind, now, shared, found);
}

inline void Order::add(History& history, const Trace& now) {
    Trace& last = history.last;
    if (last.epoch != now.epoch) {
        if (!of_this_block(last) || past_.any_signals) {
            add_block(history, now);
        }
        last = now;
        history.more = 0;
    } else if (alike(last, now)) {
        last.lanes |= now.lanes;
        if (history.more != 0) {
            add_other(history, now);
        }
    } else {
        add_other(history, now);
    }
}

inline void Order::remember(Cell& cell, AccessKind kind, const Trace& now) {
    if (kind == AccessKind::store) {
        // All that came before is ordered before this, or it would have been a race: who races with
        // them later, races with this as well.
        write(cell, now);
    } else {
        History past = past_.histories[cell.since];
        past.atomics |= kind == AccessKind::atomic ? 1 : 0;
        add(past, now);
        set_since(cell, past);
    }
}

} // namespace flash::simt
