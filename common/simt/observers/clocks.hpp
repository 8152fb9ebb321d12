// What the threads of a block know of each other's progress: vector clocks.
//
// A thread's clock counts its releases: the moments at which it lets others know that it has come
// so far (__syncwarp, arriving at an mbarrier). At a __syncthreads all clocks go on to the same
// number, and all threads know that. An access carries the clock of its thread. Thread i knows of
// all accesses of thread j whose clock is below known[i][j]; those are ordered before whatever i
// does from then on.
//
// Work that goes on beside the threads (cp.async, TMA, wgmma) ends on a channel: the copies of a
// thread, the phases of an mbarrier, the groups of a warpgroup's products, the groups of a thread's
// bulk stores. Thread i knows that the first known[i][c] of channel c are over. So must the thread
// that started them, by waiting. Channels have numbers after those of the threads.
//
// Two kinds of channels say how far threads are, and nothing of memory: the steps of a thread at
// mbarriers (its arrivals, and its waits that are over), and the phases of an mbarrier, once more.
// A thread learns of these wherever it waits for others, so at a shuffle or an mma as well.
//
// What a thread writes to shared memory, TMA and wgmma see after a fence: thread i knows that what
// thread j wrote before its clock reached fenced[i][j] has been made visible to them, and so have
// the first fenced[i][c] of channel c. All this holds from one epoch to the next.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/simt/observers/signals.hpp"

namespace flash::simt {

/// `values[place]` becomes `to`, if it is less. Entries that are not there are 0.
void raise(std::vector<uint32_t>& values, size_t place, uint32_t to);

inline bool is_above(const std::vector<uint32_t>& values, size_t place, uint32_t number) {
    return place < values.size() && values[place] > number;
}

class Clocks {
  public:
    struct Knowledge {
        // an entry for each thread, then for each channel; those that are not there are 0
        std::vector<uint32_t> known, fenced;
        // of other blocks
        BlocksKnown blocks;
        HandedOn handed_on;
        PendingSignals pending;
    };

    void begin_block(unsigned threads);

    /// Everything before is known to all: the threads have met.
    void reset(unsigned threads);

    uint32_t clock(unsigned thread) const { return clocks_[thread]; }

    /// Whether `thread` knows of accesses that these lanes of a warp made at `clock`.
    bool knows(unsigned thread, unsigned warp, uint32_t lanes, uint32_t clock) const {
        const std::vector<uint32_t>& own = known_[thread]->known;
        for (; lanes != 0; lanes &= lanes - 1) {
            if (own[warp * 32 + static_cast<unsigned>(std::countr_zero(lanes))] <= clock) {
                return false;
            }
        }
        return true;
    }

    /// Lanes of a warp have met: each knows what any of them knew and did.
    void meet(unsigned warp, uint32_t lanes);

    /// Whether `thread` knows that number `number` of a channel, from 0, is over.
    bool knows_end(unsigned thread, uint32_t channel, uint32_t number) const {
        return is_above(known_[thread]->known, channel, number);
    }
    void learn_ends(unsigned thread, uint32_t channel, uint32_t count);

    /// Lanes of a warp have waited for each other, and no memory is in order by that: of these
    /// channels each knows what any of them knew.
    void share(unsigned warp, uint32_t lanes, const std::vector<uint32_t>& channels);

    /// What `thread` knows of these channels, `into` holds as well.
    void tell(unsigned thread, const std::vector<uint32_t>& channels, Knowledge& into) const;

    const Knowledge& of(unsigned thread) const { return *known_[thread]; }
    Knowledge& of(unsigned thread) {
        ++state_;
        return own(thread);
    }

    /// What `thread` does from here on, is later than what it has done; returns how far the threads
    /// of the block were, as far as it knows.
    Progress step(unsigned thread);

    /// All that `thread` has written or knows of is visible to TMA and wgmma, as far as it is told
    /// of this fence.
    void fence(unsigned thread);

    /// What each of `count` threads knows, the first of them on. What one of them did itself, it
    /// knows.
    const Knowledge& common(unsigned first, unsigned count);

    // What threads hand on through a barrier.
    void release(unsigned thread, Knowledge& into);
    void acquire(unsigned thread, const Knowledge& from);

  private:
    void tick(unsigned thread);
    Knowledge& own(unsigned thread);
    Knowledge find_common(unsigned first, unsigned count) const;

    std::vector<uint32_t> clocks_;
    // of each thread: what all knew at the last barrier, or what it has learnt since
    std::vector<const Knowledge*> known_;
    Knowledge all_;
    std::vector<Knowledge> own_;
    Knowledge joint_; // of lanes that meet
    struct Found {
        uint64_t state;
        Knowledge common;
    };
    // by first thread and count, as long as nothing changes
    std::map<std::pair<unsigned, unsigned>, Found> found_;
    uint64_t state_ = 0;   // of known_
    uint32_t highest_ = 0; // clock
};

} // namespace flash::simt
