// Watches every access of a block to global and shared memory, and stops the block at the first that is wrong.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/simt/async_copy.hpp"
#include "common/simt/device_memory.hpp"
#include "common/simt/fault.hpp"
#include "common/simt/instrument.hpp"
#include "common/simt/race.hpp"
#include "common/simt/shared_memory.hpp"

namespace flash::simt {

class Block;
struct MBarrier;
struct Thread;

class Detector {
  public:
    explicit Detector(Block& block);

    void begin_launch();
    void begin_block();
    std::optional<Fault> end_block();
    void barrier();                                // all threads of the block have met
    void sync_warp(unsigned warp, uint32_t lanes); // lanes have met in a __syncwarp

    /// An access that `thread` is about to make to shared or global memory.
    void check(const Thread& thread, const AccessEvent& access, Space space);

    /// An access to neither: local variables, arguments and constants are fine, anything else does not exist on a GPU.
    void check_elsewhere(const Thread& thread, const AccessEvent& access);

    void start_copy(const Thread& thread, const AsyncCopy& copy);
    void wait_for_copies(const Thread& thread, uint32_t count);

    void release(const Thread& thread, MBarrier& barrier);
    void hand_on_copies(const Thread& thread, uint32_t count, MBarrier& barrier);
    void acquire(const Thread& thread, const MBarrier& barrier);

  private:
    struct Region { // what an address lies in
        const char* begin;
        size_t bytes;
        std::string_view name;
        Shadow* shadow;
        bool contains(const AccessEvent& access) const {
            return access.address >= begin && access.address + access.bytes <= begin + bytes;
        }
    };

    struct Flights {                  // the copies that a thread has started
        std::deque<AsyncCopy> copies; // those that nobody has waited for
        uint32_t ended = 0;           // how many came before
    };

    void end_copies(unsigned starter, uint32_t count);
    void begin_gathering(MBarrier& barrier) const;
    Region find(const AccessEvent& access, Space space) const;
    void check_cell(const Thread& thread, const AccessEvent& access, const Region& region, bool shared, Cell& cell,
                    History& atomics, const Trace& now);
    Place place_of(const Trace& trace, const Trace& now, const char* action) const;
    Fault fault(FaultKind kind, const std::string& summary, const Thread& thread, const AccessEvent& access) const;
    [[noreturn, gnu::cold]] void stop_outside(const Thread& thread, const AccessEvent& access,
                                              const Region& region) const;
    [[noreturn, gnu::cold]] void stop_in_flight(const Thread& thread, const AccessEvent& access, const Region& region,
                                                const Trace& copy) const;
    [[noreturn, gnu::cold]] void stop_race(const Thread& thread, const AccessEvent& access, const Region& region,
                                           const Order::Race& race) const;

    Block& block_;
    Order order_;
    std::vector<std::pair<uint32_t, uint3>> blocks_; // of this launch, each with its first epoch
    // A read of memory that nobody wrote. Kept until the next barrier: if another thread writes there before, it is a
    // race, and that says more.
    std::optional<Fault> unwritten_;
    std::vector<Flights> flights_; // of each thread of the block
    std::unique_ptr<Shadow> dynamic_shadow_, static_shadow_;
    std::pair<const char*, const char*> image_; // the executable: its constants may be read
};

} // namespace flash::simt
