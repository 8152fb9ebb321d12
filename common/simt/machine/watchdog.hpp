// Looks after launches from an OS thread of its own: ends one that makes no progress, and says
// where threads stand when somebody presses Ctrl-C, or the program's time is over.
//
// A worker whose kernel never calls the runtime can only be stopped by a signal. What its thread
// does then depends on where it is hit: in the kernel's own code it waits until the watchdog has
// looked at its block, and goes on or gives the block up. Anywhere else, where it may hold a lock,
// it goes on at once, and the watchdog tries again.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <pthread.h>

#include "common/simt/machine/block.hpp"

namespace flash::simt {

class Watchdog {
  public:
    Watchdog();
    ~Watchdog();

    using Finish = void (*)(int);
    /// From now on Ctrl-C, SIGTERM and the end of Options::seconds say where threads stand, then
    /// call `finish`.
    void handle_interrupts(Finish finish);

    /// This OS thread runs blocks of a launch, as long as it lives.
    class Shift {
      public:
        explicit Shift(Block& block);
        ~Shift();
        Shift(const Shift&) = delete;
        Shift& operator=(const Shift&) = delete;
    };

    /// Called by a block's scheduler where all its threads wait, some for a value to change: there
    /// a block is hardly ever in the kernel's own code, and can be held here. Returns the fault
    /// with which it is to end, if it is.
    static std::optional<Fault> hold_spinning_block();

  private:
    enum class State { at_work, asked, held, released, given_up };
    struct Worker {
        explicit Worker(Block& own) : block(&own) {}
        const pthread_t thread = pthread_self();
        Block* const block;
        std::atomic<State> state = State::at_work;
        LocationId place;           // where it is held
        std::optional<Fault> fault; // with which it is given up

        void wait_to_be_released() const;
    };

    static void obey(int signal, siginfo_t* info, void* context);
    static void note_interrupt(int signal);

    void serve(const std::stop_token& closing);
    bool makes_progress(double seconds);
    bool hold(Worker& worker);
    bool hold_at_line(Worker& worker);
    std::string standing(const Worker& worker) const;
    void end_launch();
    void say_where_threads_stand(int signal);

    static thread_local Worker* own_;
    static std::atomic<Finish> finish_;
    static std::atomic<int> signal_;

    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::mutex mutex_;
    std::list<Worker> workers_; // of the launch
    uint64_t meetings_ = 0, ends_ = 0;
    double without_meeting_ = 0, without_end_ = 0; // seconds
    std::condition_variable_any wake_;
    std::jthread thread_; // last: it uses the others
};

Watchdog& watchdog(); // of this process

} // namespace flash::simt
