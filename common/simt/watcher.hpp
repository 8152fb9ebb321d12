// What a block's OS thread does with the accesses and meetings that it sees: detects, counts, or both.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "common/simt/detector.hpp"
#include "common/simt/options.hpp"
#include "common/simt/profile.hpp"
#include "common/simt/warp_log.hpp"

namespace flash::simt {

struct MBarrier;

class Watcher {
  public:
    explicit Watcher(Block& block);

    /// Ready for a launch; false when the options want nothing watched.
    bool begin_launch(const Options& options);
    void begin_block();
    std::optional<Fault> end_block();

    /// An access that the current thread is about to make.
    void access(const void* address, unsigned bytes, Kind kind, Origin origin);

    /// An access by `thread` that is counted elsewhere.
    void check(const Thread& thread, const void* address, unsigned bytes, Kind kind, Origin origin);

    void start_copy(const Thread& thread, const AsyncCopy& copy);
    void wait_for_copies(const Thread& thread, uint32_t count); // its first ones

    void release(const Thread& thread, MBarrier& barrier); // it arrives
    void hand_on_copies(const Thread& thread, uint32_t count, MBarrier& barrier);
    void acquire(const Thread& thread, const MBarrier& barrier); // its wait is over

    void barrier(Site site);
    void sync_warp(unsigned warp, uint32_t lanes);

    /// The lanes of `warp` that are left have all come to one place, or there are none left: its requests are complete.
    void warp_together(unsigned warp);

    /// Adds to what the current kernel's line at `site` costs; null when nothing is counted.
    Counters* counters(Site site);

    /// What was counted since the launch began.
    Tally& tally() { return tally_; }

  private:
    void log(const Thread& thread, RequestKey key, const char* address);
    void count(const RequestKey& key, uint32_t lanes, const WarpLog::Values& values);
    Space space_of(const char* address) const;

    Block& block_;
    Arena arena_;
    std::optional<Detector> detector_;
    bool detect_ = false;
    bool count_ = false;
    std::array<WarpLog, 32> logs_;
    Tally tally_;
};

/// Who is told of what instrumented code does on this OS thread: null unless a watched kernel is at work.
extern constinit thread_local Watcher* active_watcher;

/// While it lives the runtime is at work, not the kernel, and instrumented code tells nobody. Such code is in the
/// runtime as well: of an inline function that a kernel's file and the runtime both use, like std::vector's, the linker
/// keeps one copy, and it may be the instrumented one.
class RuntimeCode {
  public:
    RuntimeCode() : before_(active_watcher) { active_watcher = nullptr; }
    ~RuntimeCode() { active_watcher = before_; }
    RuntimeCode(const RuntimeCode&) = delete;
    RuntimeCode& operator=(const RuntimeCode&) = delete;

  private:
    Watcher* before_;
};

} // namespace flash::simt
