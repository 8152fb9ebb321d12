// What the threads of a block know of each other's progress between two __syncthreads: vector clocks.
//
// A thread's clock counts its releases: the moments at which it lets others know that it has come so far (__syncwarp,
// arriving at an mbarrier). An access carries the clock of its thread. Thread i knows of all accesses of thread j whose
// clock is below known[i][j]; those are ordered before whatever i does from then on.
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

    /// What a thread hands on through a barrier, an entry for each thread.
    using Knowledge = std::vector<uint32_t>;
    void release(unsigned thread, Knowledge& into);
    void acquire(unsigned thread, const Knowledge& from);

  private:
    bool knows_each(unsigned thread, unsigned warp, uint32_t lanes, uint32_t clock) const;
    uint32_t* known(unsigned thread) { return known_.data() + size_t{thread} * threads_; }

    unsigned threads_ = 0;
    bool fresh_ = true; // nobody knows anything
    std::vector<uint32_t> clocks_;
    std::vector<uint32_t> known_; // threads_ x threads_
};

} // namespace flash::simt
