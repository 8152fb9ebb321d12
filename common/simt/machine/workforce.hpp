// The workers of a launch, and how their blocks wait for each other.
//
// A worker is an OS thread, and runs one block from beginning to end. So many may run at the same
// time; each of those holds a place. A block whose threads all spin gives its place away: to a
// block that has not begun, which another worker then runs, as long as the device would hold so
// many; or to the one that gave its place away first. It goes on when it is given one again.
//
// At a semaphore a block waits without giving way to blocks that have not begun: its threads must
// not wait for those. When all workers wait there, that is a deadlock.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace flash::simt {

class Workforce {
  public:
    /// What blocks of a launch may do.
    struct Rules {
        unsigned places = 1;
        uint64_t resident = 1;              // as many blocks may have begun and not ended
        std::function<bool()> more;         // whether there are blocks that have not begun
        std::function<bool()> start_worker; // one more, which has a place; false: it cannot be
    };

    /// A launch begins, whose first workers have a place each.
    void begin(Rules rules);

    void join(); // a worker begins, with a place, and will begin a block
    void leave();
    void stay_away(); // there is a worker less than there are places

    void begin_block();
    void end_block();

    /// Before a worker takes a block: those who have given way come first. False when a block has
    /// gone wrong.
    bool await_place();

    enum class Turn {
        come,
        none,   // a block has gone wrong, and this one shall not go on
        in_vain // it comes again and again, and nobody has made progress
    };
    Turn give_way();
    void progress(); // of this worker's block

    /// A block has gone wrong: those who have given way do not come to an end.
    void stop();

    // of blocks at barriers of the whole grid, since the launch began
    std::atomic<uint64_t> arrivals = 0;

    void changed(); // something that a block may wait for at a semaphore

    /// Asks after each change; returns when the answer is true, or false when nobody is left at
    /// work who could change anything.
    bool wait_until(const std::function<bool()>& over);

  private:
    using Lock = std::unique_lock<std::mutex>;
    struct Waiting {
        std::condition_variable place;
        bool has_place = false;
    };

    void pass_on(); // the place of this worker
    bool wait_for_place(Lock& lock);
    void take_place();
    void note_progress();

    std::mutex mutex_;
    std::condition_variable change_;
    uint64_t changes_ = 0;
    unsigned at_work_ = 0;
    unsigned waiting_ = 0; // at semaphores, since the last change

    Rules rules_;
    std::deque<Waiting*> queue_; // of those who have no place
    unsigned places_ = 0, free_places_ = 0;
    // of those who have a place: the turn of their last attempt in vain, or when they got it
    std::vector<uint64_t*> running_;
    uint64_t resident_ = 0; // blocks, those included that workers come to begin
    bool stopped_ = false;
    uint64_t in_vain_ = 0; // turns since the last progress
    std::chrono::steady_clock::time_point last_progress_;
};

Workforce& workforce(); // launches take turns

} // namespace flash::simt
