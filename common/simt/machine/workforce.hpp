// The workers of a launch, as far as their blocks wait for each other.
//
// A worker runs one block from beginning to end, so a thread that waits keeps all blocks from
// running that its worker has not begun. It gives way to the other threads of its block; when none
// of them can run, the worker waits until another one's block changes what is waited for. When all
// workers wait, that is a deadlock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace flash::simt {

class Workforce {
  public:
    void join(); // a worker begins
    void leave();
    void changed(); // something that a block may wait for

    /// Asks after each change; returns when the answer is true, or false when nobody is left at
    /// work who could change anything.
    bool wait_until(const std::function<bool()>& over);

  private:
    std::mutex mutex_;
    std::condition_variable change_;
    uint64_t changes_ = 0;
    unsigned at_work_ = 0;
    unsigned waiting_ = 0; // since the last change
};

Workforce& workforce(); // launches take turns

} // namespace flash::simt
