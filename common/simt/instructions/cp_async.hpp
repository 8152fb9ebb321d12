// Twin of common/cuda/ptx/cp_async.hpp: copies from global to shared memory that a thread starts
// now and waits for later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/instruction_state.hpp"

namespace flash {
namespace simt {

struct AsyncCopy {
    AsyncWork work;
    uint32_t place; // how many the thread had started before
    char* shared;
    const char* global;
    uint8_t bytes; // 4, 8 or 16
    uint8_t given; // the first ones, which are copied; the rest become zeros
};

/// An arrival at an mbarrier that takes place when the copies started before it have landed.
struct Announced {
    const void* mbarrier;
    uint32_t copies; // how many the thread had started
};

/// The copies of one thread. They land in the order in which they were started.
struct ThreadCopies {
    std::vector<AsyncCopy> pending; // those that have not landed
    uint32_t landed = 0;            // how many have
    std::vector<uint32_t> groups;   // for each commit, how many had been started
    std::vector<Announced> announced;

    uint32_t started() const { return landed + static_cast<uint32_t>(pending.size()); }
};

class AsyncCopies final : public InstructionState {
  public:
    std::vector<ThreadCopies> of_thread;

    void begin_block(unsigned threads) override { of_thread.assign(threads, {}); }
    void check_leaving(Block& block, unsigned thread) const override;
};

/// The current thread starts a copy of 4, 8 or 16 bytes: of the first `given`, and zeros behind
/// them.
void copy_async(void* shared, const void* global, size_t bytes, size_t given,
                SourceLocation location = SourceLocation::here());

/// The current thread starts a copy; fills with zeros when not `valid`, and then does not touch
/// global memory.
void cp_async_16(void* shared, const void* global, bool valid = true,
                 SourceLocation location = SourceLocation::here());
void cp_async_commit(SourceLocation location = SourceLocation::here());

/// Waits until at most `in_flight` of the committed groups are under way.
void wait_async_copies(unsigned in_flight, SourceLocation location);

/// The current thread's arrival at an mbarrier follows its copies.
void announce_arrival(const void* mbarrier);

/// Lands all copies of the block that arrivals at this mbarrier follow, and lets them arrive.
void land_announced_copies(const void* mbarrier);

} // namespace simt

using simt::cp_async_16;
using simt::cp_async_commit;
template <int InFlight>
inline void cp_async_wait(simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::wait_async_copies(InFlight, location);
}

} // namespace flash
