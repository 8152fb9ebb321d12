// Watches every access of a block to global and shared memory, and stops the block at the first that is wrong.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/simt/async_copy.hpp"
#include "common/simt/device_memory.hpp"
#include "common/simt/fault.hpp"
#include "common/simt/instrument.hpp"
#include "common/simt/shadow.hpp"
#include "common/simt/shared_memory.hpp"

namespace flash::simt {

class Block;
struct Thread;

class Detector {
  public:
    explicit Detector(Block& block);

    void begin_launch();
    void begin_block();
    void barrier(); // all threads of the block have met
    std::optional<Fault> end_block();
    void sync_warp(unsigned warp); // lanes of a warp have met in a __syncwarp

    /// An access that `thread` is about to make to shared or global memory.
    void check(const Thread& thread, const AccessEvent& access, Space space);

    /// An access to neither: local variables, arguments and constants are fine, anything else does not exist on a GPU.
    void check_elsewhere(const Thread& thread, const AccessEvent& access);

    void start_copy(const Thread& thread, const AsyncCopy& copy);
    void end_copy(const Thread& thread, const AsyncCopy& copy);

  private:
    struct Region { // what an address lies in
        const char* begin;
        size_t bytes;
        std::string_view name;
        Shadow* shadow;
    };

    Region find(const Thread& thread, const AccessEvent& access, Space space) const;
    Moment moment_of(const Thread& thread, const AccessEvent& access, Space space) const;
    Place place_of(const Trace& trace, const Trace& now, const char* action) const;
    Fault fault(FaultKind kind, const std::string& summary, const Thread& thread, const AccessEvent& access) const;
    [[noreturn]] void stop(FaultKind kind, const std::string& summary, const Thread& thread, const AccessEvent& access,
                           const std::string& hint = "", const Trace* other = nullptr,
                           const char* other_action = "") const;

    Block& block_;
    uint32_t epoch_ = 0;
    uint32_t launch_begin_ = 0;
    uint32_t block_begin_ = 0;
    uint16_t warp_epochs_[32] = {};
    std::vector<std::pair<uint32_t, uint3>> blocks_; // of this launch, each with its first epoch
    // A read of memory that nobody wrote. Kept until the next barrier: if another thread writes there before, it is a
    // race, and that says more.
    std::optional<Fault> unwritten_;
    std::unique_ptr<Shadow> dynamic_shadow_, static_shadow_;
    std::pair<const char*, const char*> image_; // the executable: its constants may be read
};

} // namespace flash::simt
