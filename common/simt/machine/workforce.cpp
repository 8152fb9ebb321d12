#include "common/simt/machine/workforce.hpp"

namespace flash::simt {

void Workforce::join() {
    const std::lock_guard lock(mutex_);
    ++at_work_;
}

void Workforce::leave() {
    {
        const std::lock_guard lock(mutex_);
        --at_work_;
    }
    changed(); // those who wait find out whether anybody is left
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
    std::unique_lock lock(mutex_);
    while (!over()) {
        if (++waiting_ == at_work_) {
            return false;
        }
        change_.wait(lock, [this, seen = changes_] { return changes_ != seen; });
    }
    return true;
}

Workforce& workforce() {
    static Workforce all;
    return all;
}

} // namespace flash::simt
