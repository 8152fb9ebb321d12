#include "common/harness/program/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace flash {

using namespace std::chrono_literals;

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), thread_([this] { show(); }) {}

ProgressLine::~ProgressLine() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    finished_.notify_one();
    thread_.join();
}

void ProgressLine::show() {
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const auto start = std::chrono::steady_clock::now();
    std::chrono::milliseconds wait = 2s;
    bool shown = false;
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, wait, [this] { return done_; })) {
        if (silent_) {
            continue;
        }
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const double fraction = fraction_;
        std::string line = what_;
        if (fraction >= 0) {
            line +=
                " " + std::to_string(static_cast<int>(100 * std::clamp(fraction, 0.0, 1.0))) + "%";
        }
        line += ", " + std::to_string(static_cast<int>(seconds)) + " s";
        std::fprintf(stderr, terminal ? "\r\033[K%s" : "%s\n", line.c_str());
        shown = true;
        wait = terminal ? 200ms : 10s;
    }
    if (shown && terminal) {
        std::fputs("\r\033[K", stderr);
    }
}

} // namespace flash
