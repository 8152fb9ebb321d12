// Twin of common/cuda/ptx/mbarrier.hpp. The mbarriers of a block: what the runtime knows of each
// 8-byte word in shared memory that was made one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/simt/instructions/cp_async.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/machine/collective.hpp"
#include "common/simt/machine/instruction_state.hpp"

namespace flash {
namespace simt {

struct MBarrier {
    unsigned expected = 0; // arrivals that end a phase
    unsigned arrived = 0;
    unsigned announced = 0; // arrivals that follow when copies of cp.async have landed
    uint32_t phase = 0;     // that is under way, from 0

    // Of this phase. It ends when all arrivals have come and these two are equal.
    int64_t expected_bytes = 0;
    int64_t landed_bytes = 0;
    std::vector<BulkLoad> flying; // loads that have not landed
    int64_t came_bytes() const;   // with those

    std::vector<WaitingThread> waiting; // for the end of this phase
};

class MBarriers final : public InstructionState {
  public:
    std::map<const void*, MBarrier> at; // by address

    void begin_block(unsigned) override { at.clear(); }
    void add_waiters(std::vector<Waiter>& waiters) const override;
};

// What the current thread does at one.
void mbarrier_init(uint64_t* barrier, int arrivals,
                   SourceLocation location = SourceLocation::here());
void mbarrier_arrive(uint64_t* barrier, SourceLocation location = SourceLocation::here());
void mbarrier_expect_tx(uint64_t* barrier, int bytes,
                        SourceLocation location = SourceLocation::here()); // and arrives
void cp_async_mbarrier_arrive(uint64_t* barrier, SourceLocation location = SourceLocation::here());
void mbarrier_wait(uint64_t* barrier, int parity, SourceLocation location = SourceLocation::here());
void fence_mbarrier_init(SourceLocation location = SourceLocation::here());
/// Of the phase that is under way; 0 where there is no mbarrier, which who arrives there is told.
int mbarrier_parity(const void* barrier);

/// A load begins that counts at its mbarrier.
void begin_flight(BulkLoad&& load);

/// The arrival of a thread whose copies have landed.
void arrive_for_copies(unsigned thread, const Announced& announced);

} // namespace simt

using simt::cp_async_mbarrier_arrive;
using simt::fence_mbarrier_init;
using simt::mbarrier_arrive;
using simt::mbarrier_expect_tx;
using simt::mbarrier_init;
using simt::mbarrier_wait;

} // namespace flash
