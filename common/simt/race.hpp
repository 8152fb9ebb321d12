// Which accesses of memory are ordered, and which race.
//
// A race is two accesses of the same bytes by different threads, at least one a write and not both atomic, that nothing
// orders. __syncthreads begins a new epoch: accesses in different epochs of a block are ordered. Within an epoch it
// takes
// __syncwarp or an mbarrier (clocks.hpp). The threads of different blocks have no order at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/simt/clocks.hpp"
#include "common/simt/instrument.hpp"

namespace flash::simt {

/// What is remembered of an access, or of those that several lanes of a warp made at the same clock.
struct Trace {
    uint32_t epoch = 0; // 0: no access
    uint32_t origin = 0;
    uint32_t lanes = 0;
    uint32_t clock : 24 = 0;
    uint32_t warp : 5 = 0;
    uint32_t in_flight : 1 = 0; // written by a cp.async that its thread has not waited for
};

/// Accesses that do not race with each other, reads or atomic operations, since the last write.
struct History {
    Trace last;
    uint32_t more = 0; // others in the epoch of the last one: a list in Order's pool
    Trace other_block; // one in another block of the launch
};

/// Four bytes of memory, or two when they are used apart. One line of the processor's cache.
struct alignas(64) Cell {
    Trace write;
    History reads;
    bool halves = false;  // the upper two bytes have a cell of their own
    bool atomics = false; // there is a history of atomic operations
};
static_assert(sizeof(Cell) == 64);

/// Cells for a range of memory; those that are never touched cost nothing.
class Shadow {
  public:
    Shadow(const char* begin, size_t bytes);
    ~Shadow();
    Shadow(const Shadow&) = delete;
    Shadow& operator=(const Shadow&) = delete;

    /// Calls `use(cell, atomics)` with each cell of an access, at an address that is a multiple of its size.
    template <class Use> void visit(const char* address, unsigned bytes, bool store, Use use) {
        size_t word = static_cast<size_t>(address - begin_) / 4;
        if (bytes < 4) {
            Cell& lower = cells_[word];
            if (!lower.halves) {
                cells_[words_ + word] = lower;
                atomics_[words_ + word] = atomics_[word];
                lower.halves = true;
            }
            const size_t half = reinterpret_cast<size_t>(address) % 4 < 2 ? word : words_ + word;
            use(cells_[half], atomics_[half]);
            return;
        }
        for (unsigned offset = 0; offset < bytes; offset += 4, ++word) {
            use(cells_[word], atomics_[word]);
            if (cells_[word].halves) {
                use(cells_[words_ + word], atomics_[words_ + word]);
                cells_[word].halves = !store; // a whole word written is one again
            }
        }
    }

  private:
    const char* begin_;
    size_t words_;
    Cell* cells_; // of the words, or their lower halves; then of the upper halves
    History* atomics_;
};

/// The order of a block's accesses.
class Order {
  public:
    void begin_launch() { launch_begin_ = epoch_ + 1; }
    void begin_block(unsigned threads);
    void barrier(); // all threads of the block have met
    Clocks& clocks() { return clocks_; }
    uint32_t epoch() const { return epoch_; }

    /// An access that a thread makes now.
    Trace now(unsigned thread, Origin origin) const {
        return {epoch_, origin.number(), 1u << thread % 32, clocks_.clock(thread), thread / 32, 0};
    }

    bool of_this_block(const Trace& trace) const { return trace.epoch >= block_begin_; }

    /// The earlier access that an access at this moment races with, if any. `shared`: of shared memory, where what
    /// earlier blocks did is of no concern.
    struct Race {
        const Trace* other = nullptr;
        Kind kind = Kind::load; // of the other access
    };
    Race race(const Cell& cell, const History& atomics, Kind kind, const Trace& now, bool shared) const;
    void remember(Cell& cell, History& atomics, Kind kind, const Trace& now);

  private:
    struct Node {
        Trace trace;
        uint32_t next;
    };

    bool ordered(const Trace& before, const Trace& now, bool shared) const;
    const Trace* unordered(const History& history, const Trace& now, bool shared) const;
    void add(History& history, const Trace& now);
    void add_other(History& history, const Trace& now);

    uint32_t epoch_ = 0;
    uint32_t launch_begin_ = 0;
    uint32_t block_begin_ = 0;
    unsigned threads_ = 0;
    Clocks clocks_;
    std::vector<Node> pool_; // of this epoch; the first one is not used
};

} // namespace flash::simt
