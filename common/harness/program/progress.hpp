// Says on stderr that something long is still going on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "common/harness/program/verdict.hpp"

namespace flash {

/// From its construction to its destruction something happens. When that takes longer than two
/// seconds, it is shown: on a terminal as one line that is kept up to date and wiped in the end,
/// elsewhere as a line now and then.
class ProgressLine {
  public:
    explicit ProgressLine(std::string what);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// The fraction done, 0 to 1; from any thread.
    void update(double fraction) { fraction_ = fraction; }

    /// `update` as a function; valid as long as this object.
    Progress callback() {
        return [this](double fraction) { update(fraction); };
    }

    /// From now on nothing is shown: another process says it.
    static void silence() { silent_ = true; }

  private:
    void show();

    static inline bool silent_ = false;

    std::string what_;
    std::atomic<double> fraction_ = -1; // not known
    std::mutex mutex_;
    std::condition_variable finished_;
    bool done_ = false;
    std::thread thread_; // last: it uses the others
};

} // namespace flash
