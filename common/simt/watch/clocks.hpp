// What the threads of a block know of each other's progress between two __syncthreads: vector clocks.
//
// A thread's clock counts its releases: the moments at which it lets others know that it has come so far (__syncwarp,
// arriving at an mbarrier). An access carries the clock of its thread. Thread i knows of all accesses of thread j whose
// clock is below known[i][j]; those are ordered before whatever i does from then on.
//
// The copies of cp.async that a thread starts are not part of what it does, because they go on while it does other
// things. They are numbered apart, in the order in which the thread started them, from the block's beginning: thread i
// knows that the first copies[i][j] copies of thread j have landed. So must j itself, by waiting for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flash::simt {

class Clocks {
  public:
    /// Everything before is known to all: a block begins, or its threads have met.
    void reset(unsigned threads);

    uint32_t clock(unsigned thread) const { return clocks_[thread]; }

    /// Whether `thread` knows of accesses that these lanes of a warp made at `clock`.
    bool knows(unsigned thread, unsigned warp, uint32_t lanes, uint32_t clock) const {
        return !fresh_ && knows_each(thread, warp, lanes, clock);
    }

    /// Lanes of a warp have met: each knows what any of them knew and did.
    void meet(unsigned warp, uint32_t lanes);

    /// Whether `thread` knows that a copy has landed: the one that `starter` started after `number` others.
    bool knows_copy(unsigned thread, unsigned starter, uint32_t number) const {
        return !copies_.empty() && copies_[size_t{thread} * threads_ + starter] > number;
    }

    /// `thread` has waited for the first `count` copies of `starter`.
    void learn_copies(unsigned thread, unsigned starter, uint32_t count);

    /// What threads hand on through a barrier, an entry for each thread; empty as long as it is nothing.
    struct Knowledge {
        std::vector<uint32_t> clocks, copies;
    };
    void release(unsigned thread, Knowledge& into);
    void acquire(unsigned thread, const Knowledge& from);

  private:
    bool knows_each(unsigned thread, unsigned warp, uint32_t lanes, uint32_t clock) const;

    unsigned threads_ = 0;
    bool fresh_ = true; // nobody knows anything
    std::vector<uint32_t> clocks_;
    std::vector<uint32_t> known_;  // threads_ x threads_
    std::vector<uint32_t> copies_; // as many; empty until a thread learns of a copy
};

} // namespace flash::simt
