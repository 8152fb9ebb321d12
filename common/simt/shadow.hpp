// Which accesses of memory are ordered, and which race.
//
// Time in a block is counted in epochs: __syncthreads begins a new one. Accesses in different epochs of a block are
// ordered; so are accesses of one thread, and those of one warp with a __syncwarp between them. Nothing else is. A race
// is two accesses of the same bytes, at least one a write and not both atomic, that nothing orders. The threads of a
// block have no order with those of another block, so for global memory every epoch of another block is unordered.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/simt/instrument.hpp"

namespace flash::simt {

/// What is remembered of an access, or of the accesses of several lanes of a warp.
struct Trace {
    uint32_t epoch = 0; // 0: no access
    uint32_t origin = 0;
    uint32_t lanes = 0;
    uint16_t warp_epoch = 0; // __syncwarps of the warp since the epoch began
    uint8_t warp = 0;
    bool in_flight = false; // written by a cp.async that its thread has not waited for
};

/// The moment of an access.
struct Moment {
    Trace now;
    uint32_t launch_begin; // the first epoch of this launch
    uint32_t block_begin;  // the first epoch of this block
    bool shared;           // shared memory: that of earlier blocks was another

    bool of_this_block(const Trace& before) const { return before.epoch >= block_begin; }
    bool ordered_after(const Trace& before) const;
};

/// Accesses that do not race with each other: reads, or atomic operations. To find out whether a later access races
/// with any of them, it is enough to remember the last warp, another warp of its block, and one of another block.
struct History {
    Trace last, other_warp, other_block;

    void add(const Moment& moment);

    /// One of them that nothing orders before the moment, or null.
    const Trace* unordered(const Moment& moment) const;
};

/// Two bytes of memory.
struct Cell {
    Trace write;
    History reads, atomics;

    /// The earlier access that an access at this moment races with, or null.
    const Trace* race(Kind kind, const Moment& moment) const;
    void remember(Kind kind, const Moment& moment);
};

/// Cells for a range of memory; those that are never touched cost nothing.
class Shadow {
  public:
    static constexpr size_t granule = 2; // bytes: two threads may share a word, each writing its half

    Shadow(const char* begin, size_t bytes);
    ~Shadow();
    Shadow(const Shadow&) = delete;
    Shadow& operator=(const Shadow&) = delete;

    Cell* at(const char* address) const { return cells_ + static_cast<size_t>(address - begin_) / granule; }

  private:
    const char* begin_;
    size_t bytes_; // of the cells
    Cell* cells_;
};

} // namespace flash::simt
