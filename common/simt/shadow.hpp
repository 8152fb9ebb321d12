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
    enum State : uint8_t { plain, atomic, in_flight }; // in_flight: a cp.async that its thread has not waited for
    uint32_t epoch = 0;                                // 0: no access
    uint32_t origin = 0;
    uint32_t lanes = 0;
    uint16_t warp_epoch = 0; // __syncwarps of the warp since the epoch began
    uint8_t warp = 0;
    State state = plain;
};

/// Two bytes of memory. To find every race with a later write, it is enough to remember the last reading warp,
/// another reading warp, and a reader in another block.
struct Cell {
    Trace write, read, other_warp, other_block;
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

/// The moment of an access.
struct Moment {
    Trace now;
    uint32_t launch_begin; // the first epoch of this launch
    uint32_t block_begin;  // the first epoch of this block
    bool shared;           // earlier blocks had another shared memory

    bool of_this_block(const Trace& before) const { return before.epoch >= block_begin; }
    bool ordered_after(const Trace& before) const;
};

/// The earlier access that races with a read (a write, an atomic operation) at this moment; null when there is none.
const Trace* race_of_read(const Cell& cell, const Moment& moment);
const Trace* race_of_write(const Cell& cell, const Moment& moment);

void remember_read(Cell& cell, const Moment& moment);
inline void remember_write(Cell& cell, const Moment& moment) { cell.write = moment.now; }

} // namespace flash::simt
