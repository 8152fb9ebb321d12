// What programs use of the CUDA samples' header of this name. (The samples' own, beside a file,
// comes first.)
#pragma once

#include <chrono>

/// Adds up the times between its starts and stops, in milliseconds.
class StopWatchInterface {
  public:
    void start() {
        started_ = Clock::now();
        running_ = true;
    }
    void stop() {
        total_ = getTime();
        running_ = false;
        ++sessions_;
    }
    void reset() {
        total_ = 0;
        sessions_ = 0;
        started_ = Clock::now();
    }
    float getTime() const {
        const std::chrono::duration<float, std::milli> since = Clock::now() - started_;
        return total_ + (running_ ? since.count() : 0);
    }
    float getAverageTime() const {
        return sessions_ > 0 ? total_ / static_cast<float>(sessions_) : 0;
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point started_ = Clock::now();
    float total_ = 0;
    int sessions_ = 0;
    bool running_ = false;
};
using StopWatchLinux = StopWatchInterface;

inline bool sdkCreateTimer(StopWatchInterface** timer) {
    *timer = new StopWatchInterface;
    return true;
}
inline bool sdkDeleteTimer(StopWatchInterface** timer) {
    delete *timer;
    *timer = nullptr;
    return true;
}
inline bool sdkStartTimer(StopWatchInterface** timer) {
    (*timer)->start();
    return true;
}
inline bool sdkStopTimer(StopWatchInterface** timer) {
    (*timer)->stop();
    return true;
}
inline bool sdkResetTimer(StopWatchInterface** timer) {
    (*timer)->reset();
    return true;
}
inline float sdkGetTimerValue(StopWatchInterface** timer) { return (*timer)->getTime(); }
inline float sdkGetAverageTimerValue(StopWatchInterface** timer) {
    return (*timer)->getAverageTime();
}
