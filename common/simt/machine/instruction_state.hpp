// What a block remembers of one kind of instruction: barriers, copies under way, registers. The
// machine knows no instruction; each brings its state along (common/simt/instructions), and a block
// makes it when the instruction is first used: block.state<NamedBarriers>().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/machine/location_id.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

class Block;

/// A thread that waits, as the message about a deadlock tells it.
struct Waiter {
    unsigned thread;
    const char* operation;
    SourceLocation location;
    std::string state; // "1 of 2 have arrived"; may be empty
};

class InstructionState {
  public:
    virtual ~InstructionState() = default;

    /// A block of so many threads begins. Nothing is left of the block before.
    virtual void begin_block(unsigned threads) = 0;

    /// A thread leaves the kernel. Stops the block if something that it started is not over.
    virtual void check_leaving(Block&, unsigned /*thread*/) const {}

    /// Adds those who wait at this instruction.
    virtual void add_waiters(std::vector<Waiter>&) const {}

    /// Whether threads wait for other blocks. Then `release_threads` lets those go on whose wait is
    /// over, and says whether there were any.
    virtual bool waits_for_blocks() const { return false; }
    virtual bool release_threads(Block&) { return false; }

    /// For the one that a block lets hear (Block::let_hear): lanes have met at a barrier or at
    /// __syncwarp; the current thread has written what others see.
    virtual void have_met(Block&, unsigned /*warp*/, uint32_t /*lanes*/) {}
    virtual void has_written(Block&, LocationId /*origin*/) {}
};

inline std::atomic<size_t> state_types = 0;

/// The place of a type of state in each block's list.
template <class State> size_t state_index() {
    static const size_t index = state_types++;
    return index;
}

} // namespace flash::simt
