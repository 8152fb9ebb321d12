// Watches every access of a block to global and shared memory, and stops the block at the first that is wrong.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/simt/machine/block.hpp"
#include "common/simt/watch/race.hpp"

namespace flash::simt {

class Detector final : public Observer {
  public:
    explicit Detector(Block& block);

    void begin_launch();

    void begin_block() override;
    std::optional<Fault> end_block() override;
    void access(unsigned thread, const AccessEvent& access) override;
    void load_matrices(std::span<const MatrixRow> rows, Site site) override;
    void start_copy(unsigned thread, const AsyncCopy& copy) override;
    void wait_for_copies(unsigned thread, uint32_t count) override;
    void touch_mbarrier(unsigned thread, const AccessEvent& word) override { access(thread, word); }
    void make_mbarrier(const void* barrier) override { handovers_[barrier] = {}; }
    void release(unsigned thread, const void* barrier) override;
    void hand_on_copies(unsigned thread, uint32_t count, const void* barrier) override;
    void end_phase(const void* barrier) override;
    void acquire(unsigned thread, const void* barrier) override;
    void barrier(Site site) override;
    void meet(Meeting meeting, unsigned warp, uint32_t lanes, Site site) override;

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

    /// What those who arrive at an mbarrier hand on to those who wait, for this phase and for the one before. The
    /// clocks hold for the epoch in which they were gathered: at the next __syncthreads all know more. Of copies they
    /// do not.
    struct Handover {
        Clocks::Knowledge gathered, handed_on;
        uint32_t gathered_epoch = 0, handed_on_epoch = 0;
    };

    void check(unsigned thread, const AccessEvent& access, Space space);
    void check_elsewhere(unsigned thread, const AccessEvent& access);
    void end_copies(unsigned starter, uint32_t count);
    Handover& gathering(const void* barrier);
    Region find(const AccessEvent& access, Space space) const;
    void check_cell(unsigned thread, const AccessEvent& access, const Region& region, bool shared, Cell& cell,
                    const Trace& now);
    Place place_of(const Trace& trace, const Trace& now, const char* action) const;
    Fault fault(FaultKind kind, const std::string& summary, unsigned thread, const AccessEvent& access) const;
    [[noreturn, gnu::cold]] void stop_outside(unsigned thread, const AccessEvent& access, const Region& region) const;
    [[noreturn, gnu::cold]] void stop_in_flight(unsigned thread, const AccessEvent& access, const Region& region,
                                                const Trace& copy) const;
    [[noreturn, gnu::cold]] void stop_race(unsigned thread, const AccessEvent& access, const Region& region,
                                           const Order::Race& race) const;

    Block& block_;
    Order order_;
    std::vector<std::pair<uint32_t, uint3>> blocks_; // of this launch, each with its first epoch
    // A read of memory that nobody wrote. Kept until the next barrier: if another thread writes there before, it is a
    // race, and that says more.
    std::optional<Fault> unwritten_;
    std::vector<Flights> flights_; // of each thread of the block
    std::map<const void*, Handover> handovers_;
    std::unique_ptr<Shadow> dynamic_shadow_, static_shadow_;
    std::pair<const char*, const char*> image_; // the executable: its constants may be read
};

} // namespace flash::simt
