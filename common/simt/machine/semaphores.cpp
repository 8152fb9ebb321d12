#include "common/simt/machine/semaphores.hpp"

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

AccessEvent word(const unsigned* semaphore, Site site) {
    return {reinterpret_cast<const char*>(semaphore), sizeof *semaphore, Kind::atomic,
            Origin::of(site)};
}

} // namespace

void semaphore_wait(const unsigned* semaphore, unsigned value, Site site) {
    const Caller caller;
    caller.tells(&Observer::touch, word(semaphore, site));
    caller.block.wait_for({semaphore, value, caller.thread.number, site});
    caller.tells(&Observer::pass_semaphore, semaphore, value);
}

void semaphore_add(unsigned* semaphore, Site site) {
    const Caller caller;
    if (caller.thread.stores.unfinished()) {
        caller.block.refuse(
            FaultKind::race,
            "race: another block may go on while TMA still writes what this thread had it store or "
            "add",
            "semaphore_add", site,
            "bulk_wait first: after bulk_wait_read, the data have been read and no more");
    }
    caller.tells(&Observer::access, word(semaphore, site));
    caller.tells(&Observer::add_to_semaphore, semaphore);
    __atomic_fetch_add(semaphore, 1, __ATOMIC_RELEASE);
    workforce().changed();
}

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
