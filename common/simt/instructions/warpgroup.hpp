// Twin of common/cuda/ptx/warpgroup.hpp: named barriers, and registers that pass from one warpgroup
// (four warps) to another.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/simt/machine/collective.hpp"
#include "common/simt/machine/instruction_state.hpp"

namespace flash {
namespace simt {

struct NamedBarrier {
    unsigned expected = 0; // threads; 0: nobody has come
    unsigned arrived = 0;
    unsigned first = 0;      // thread that came first
    SourceLocation location; // where
    const char* operation = "";
    std::vector<WaitingThread> waiting;
};

class NamedBarriers final : public InstructionState {
  public:
    std::array<NamedBarrier, 16> at; // by number

    void begin_block(unsigned) override { at.fill({}); }
    void add_waiters(std::vector<Waiter>& waiters) const override;
};

/// The registers of an SM, all of which the one block on it may have.
class Registers final : public InstructionState {
  public:
    static constexpr unsigned in_all = 65536;
    unsigned free = 0;
    std::array<unsigned, 8> of_thread{}; // in each warpgroup
    struct Wanted {
        unsigned warpgroup;
        unsigned registers; // a thread
        std::vector<WaitingThread> waiting;
    };
    std::vector<Wanted> wanted;

    void begin_block(unsigned threads) override;
    void add_waiters(std::vector<Waiter>& waiters) const override;
};

// The current thread.
void named_barrier_sync(int id, int threads, SourceLocation location = SourceLocation::here());
void named_barrier_arrive(int id, int threads, SourceLocation location = SourceLocation::here());
void set_registers(bool gives, unsigned registers, SourceLocation location);

} // namespace simt

using simt::named_barrier_arrive;
using simt::named_barrier_sync;
template <int registers>
inline void give_registers(simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::set_registers(true, registers, location);
}
template <int registers>
inline void take_registers(simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::set_registers(false, registers, location);
}

} // namespace flash
