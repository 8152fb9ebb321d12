#include "common/simt/machine/workforce.hpp"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {
namespace {

// This worker:
thread_local bool has_place = false;
thread_local bool will_begin = false; // a block, which is counted already
thread_local uint64_t last_turn = 0;

constexpr uint64_t turns_in_vain = 200; // of each block

/// So long nobody has made progress, and nobody will make any. Those who look a limited number of
/// times have given up by then. Where no block waits for another one, the watchdog knows better.
double seconds_in_vain(bool some_cannot_begin, bool turns) {
    constexpr double surely = 2;
    constexpr double before_the_watchdog = 0.8;
    const double timeout = options().timeout;
    return some_cannot_begin                ? surely
           : turns && options().timeout > 0 ? before_the_watchdog * timeout
                                            : std::numeric_limits<double>::infinity();
}

} // namespace

void Workforce::begin(Rules rules) {
    const std::lock_guard lock(mutex_);
    rules_ = std::move(rules);
    places_ = rules_.places;
    free_places_ = 0;
    running_.clear();
    running_.reserve(2048); // memory may be short when workers come
    resident_ = places_;
    arrivals = 0;
    stopped_ = false;
    in_vain_ = 0;
}

void Workforce::join() {
    const std::lock_guard lock(mutex_);
    ++at_work_;
    take_place();
    will_begin = true;
}

void Workforce::stay_away() {
    const std::lock_guard lock(mutex_);
    --places_;
    --resident_;
}

void Workforce::take_place() {
    has_place = true;
    last_turn = in_vain_;
    running_.push_back(&last_turn);
}

void Workforce::note_progress() {
    in_vain_ = 0;
    for (uint64_t* const turn : running_) {
        *turn = 0;
    }
}

void Workforce::leave() {
    {
        const std::lock_guard lock(mutex_);
        --at_work_;
        resident_ -= std::exchange(will_begin, false) ? 1 : 0;
        pass_on();
    }
    changed(); // those who wait find out whether anybody is left
}

void Workforce::begin_block() {
    const std::lock_guard lock(mutex_);
    resident_ += std::exchange(will_begin, false) ? 0 : 1;
}

void Workforce::end_block() {
    const std::lock_guard lock(mutex_);
    --resident_;
    note_progress();
}

/// The place of this worker goes to the first who waits for one.
void Workforce::pass_on() {
    if (!std::exchange(has_place, false)) {
        return;
    }
    std::erase(running_, &last_turn);
    if (queue_.empty()) {
        ++free_places_;
        return;
    }
    queue_.front()->has_place = true;
    queue_.front()->place.notify_one();
    queue_.pop_front();
}

/// False when a block has gone wrong, and there was no place.
bool Workforce::wait_for_place(Lock& lock) {
    if (free_places_ > 0) {
        --free_places_;
        take_place();
        return true;
    }
    Waiting own;
    queue_.push_back(&own);
    own.place.wait(lock, [&] { return own.has_place || stopped_; });
    if (stopped_) {
        std::erase(queue_, &own);
        return false;
    }
    take_place();
    return true;
}

bool Workforce::await_place() {
    Lock lock(mutex_);
    if (stopped_ || queue_.empty()) {
        return !stopped_;
    }
    pass_on();
    return wait_for_place(lock);
}

Workforce::Turn Workforce::give_way() {
    using Clock = std::chrono::steady_clock;
    Lock lock(mutex_);
    if (stopped_) {
        return Turn::none;
    }
    if (in_vain_++ == 0) {
        last_progress_ = Clock::now();
    }
    last_turn = in_vain_;
    if (resident_ < rules_.resident && rules_.more()) {
        // The new worker has this one's place. It joins when it has memory for a block.
        if (rules_.start_worker()) {
            ++resident_;
            has_place = false;
            std::erase(running_, &last_turn);
            return wait_for_place(lock) ? Turn::come : Turn::none;
        }
    }
    const bool all = std::ranges::all_of(
        running_, [&](const uint64_t* turn) { return in_vain_ - *turn <= 8 * places_; });
    if (all && in_vain_ > turns_in_vain * (queue_.size() + running_.size()) &&
        std::chrono::duration<double>(Clock::now() - last_progress_).count() >
            seconds_in_vain(rules_.more(), !queue_.empty())) {
        return Turn::in_vain;
    }
    if (queue_.empty()) {
        lock.unlock();
        std::this_thread::yield();
        return Turn::come;
    }
    pass_on();
    return wait_for_place(lock) ? Turn::come : Turn::none;
}

void Workforce::progress() {
    const std::lock_guard lock(mutex_);
    note_progress();
}

void Workforce::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (Waiting* const one : queue_) {
        one->place.notify_one();
    }
}

void Workforce::changed() {
    {
        const std::lock_guard lock(mutex_);
        ++changes_;
        waiting_ = 0;
    }
    change_.notify_all();
}

bool Workforce::wait_until(const std::function<bool()>& over) {
    Lock lock(mutex_);
    while (!over()) {
        if (++waiting_ == at_work_) {
            return false;
        }
        pass_on();
        change_.wait(lock, [this, seen = changes_] { return changes_ != seen; });
        if (!wait_for_place(lock)) {
            return false;
        }
    }
    return true;
}

Workforce& workforce() {
    static Workforce all;
    return all;
}

} // namespace flash::simt
