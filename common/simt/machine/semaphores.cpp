#include "common/simt/machine/semaphores.hpp"

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/refuse.hpp"

namespace flash::simt {
namespace {

AccessEvent word(const unsigned* semaphore, Site site) {
    return {reinterpret_cast<const char*>(semaphore), sizeof *semaphore, Kind::atomic, Origin::of(site)};
}

} // namespace

void wait_for_semaphore(const unsigned* semaphore, unsigned value, Site site) {
    const RuntimeCode runtime;
    Block& block = current_block();
    const unsigned thread = block.current().number;
    for (Observer* const observer : block.observers()) {
        observer->touch_semaphore(thread, word(semaphore, site));
    }
    block.wait_for({semaphore, value, thread, site});
    for (Observer* const observer : block.observers()) {
        observer->pass_semaphore(thread, semaphore, value);
    }
}

void add_to_semaphore(unsigned* semaphore, Site site) {
    const RuntimeCode runtime;
    Block& block = current_block();
    const Thread& thread = block.current();
    if (thread.stores.unfinished()) {
        refuse(FaultKind::race,
               "race: another block may go on while TMA still writes what this thread had it store or add",
               "semaphore_add", site, "bulk_wait first: after bulk_wait_read, the data have been read and no more");
    }
    for (Observer* const observer : block.observers()) {
        observer->access(thread.number, word(semaphore, site));
        observer->add_to_semaphore(thread.number, semaphore);
    }
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

uint64_t Workforce::changes() {
    const std::lock_guard lock(mutex_);
    return changes_;
}

bool Workforce::wait(uint64_t seen) {
    std::unique_lock lock(mutex_);
    if (changes_ == seen && ++waiting_ == at_work_) {
        return false;
    }
    change_.wait(lock, [&] { return changes_ != seen; });
    return true;
}

Workforce& workforce() {
    static Workforce all;
    return all;
}

} // namespace flash::simt
