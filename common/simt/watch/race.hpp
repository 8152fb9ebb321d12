// Which accesses of memory are ordered, and which race.
//
// A race is two accesses of the same bytes by different threads, at least one a write and not both atomic, that nothing
// orders. __syncthreads
// begins a new epoch: accesses in different epochs of a block are ordered. Within an epoch it takes __syncwarp or an
// mbarrier (clocks.hpp). The threads of different blocks have no order at all.
//
// A cp.async writes at an unknown moment. Its cells are marked as in flight, over epochs too, until some thread has
// waited for it; from then on it is a write that those know of who have waited, or to whom that was handed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/watch/clocks.hpp"

namespace flash::simt {

/// What is remembered of an access, or of those that several lanes of a warp made at the same clock.
struct Trace {
    uint32_t epoch = 0; // 0: no access
    uint32_t origin = 0;
    uint32_t lanes = 0;
    uint32_t clock : 24 = 0; // of a copy: its number
    uint32_t warp : 5 = 0;
    uint32_t copy : 1 = 0;      // written by a cp.async
    uint32_t in_flight : 1 = 0; // which nobody has waited for
    uint32_t atomic : 1 = 0;    // an atomic operation
};

/// Reads and atomic operations since the last write.
struct History {
    Trace last;
    uint32_t more = 0; // others in the epoch of the last one: a list in Order's pool
    Trace other_block; // one in another block of the launch
};

/// Four bytes of memory, or one when they are used apart. One line of the processor's cache.
struct alignas(64) Cell {
    Trace write;
    History since;
    bool apart = false;   // its other three bytes have cells of their own
    bool atomics = false; // there are atomic operations among `since`
};
static_assert(sizeof(Cell) == 64);

/// Cells for a range of memory; those that are never touched cost nothing.
class Shadow final : public DeviceMemory::Notes {
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
            if (cells_[word].apart) {
                for (size_t byte = 1; byte < 4; ++byte) {
                    use(cells_[byte * words_ + word]);
                }
                cells_[word].apart = !store; // a whole word written is one again
            }
        }
    }

  private:
    void take_apart(size_t word) {
        if (!cells_[word].apart) {
            for (size_t byte = 1; byte < 4; ++byte) {
                cells_[byte * words_ + word] = cells_[word];
            }
            cells_[word].apart = true;
        }
    }

    const char* begin_;
    size_t words_;
    Cell* cells_; // of the words, or their first bytes; then of all second bytes, and so on
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
    Trace now(unsigned thread, Origin origin, Kind kind) const {
        return {epoch_, origin.number(),     1u << thread % 32, clocks_.clock(thread), thread / 32, 0,
                0,      kind == Kind::atomic};
    }

    /// The write of a copy, now that a thread has waited for it.
    Trace landed(unsigned starter, uint32_t number, Origin origin) const {
        return {epoch_, origin.number(), 1u << starter % 32, number, starter / 32, 1, 0, 0};
    }

    bool of_this_block(const Trace& trace) const { return trace.epoch >= block_begin_; }

    /// The earlier access that an access at this moment races with, if any. `shared`: of shared memory, where what
    /// earlier blocks did is of no concern.
    struct Race {
        const Trace* other = nullptr;
        Kind kind = Kind::load; // of the other access
    };
    Race race(const Cell& cell, Kind kind, const Trace& now, bool shared) const;
    void remember(Cell& cell, Kind kind, const Trace& now);

  private:
    struct Node {
        Trace trace;
        uint32_t next;
    };

    bool ordered(const Trace& before, const Trace& now, bool shared) const;
    bool races(const Trace& before, Kind kind, const Trace& now, bool shared) const;
    const Trace* unordered(const History& history, Kind kind, const Trace& now, bool shared) const;
    void add(History& history, const Trace& now);
    void add_other(History& history, const Trace& now);

    uint32_t epoch_ = 0;
    uint32_t launch_begin_ = 0;
    uint32_t block_begin_ = 0;
    unsigned threads_ = 0;
    Clocks clocks_;
    std::vector<Node> pool_; // of this epoch; the first one is not used
    uint32_t unused_ = 0;    // a list of nodes that can be used again
};

} // namespace flash::simt
