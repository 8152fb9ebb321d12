#include "common/simt/instructions/semaphore.hpp"

#include <algorithm>

#include "common/simt/instructions/atomics.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/workforce.hpp"

namespace flash::simt {
namespace {

/// A thread at a semaphore.
struct SemaphoreWait {
    const unsigned* semaphore;
    unsigned value;
    unsigned thread;
    SourceLocation location;
    unsigned now() const { return __atomic_load_n(semaphore, __ATOMIC_ACQUIRE); }
    bool over() const { return now() >= value; }
};

class Semaphores final : public InstructionState {
  public:
    std::vector<SemaphoreWait> waits;

    void begin_block(unsigned) override { waits.clear(); }
    bool waits_for_blocks() const override { return !waits.empty(); }
    bool release_threads(Block& block) override {
        return std::erase_if(waits, [&](const SemaphoreWait& wait) {
                   const bool over = wait.over();
                   if (over) {
                       block.release(wait.thread);
                   }
                   return over;
               }) > 0;
    }
    void add_waiters(std::vector<Waiter>& waiters) const override {
        for (const SemaphoreWait& wait : waits) {
            waiters.push_back({wait.thread, "semaphore_wait", wait.location,
                               "it is " + std::to_string(wait.now()) + ", " +
                                   std::to_string(wait.value) +
                                   " is waited for, and no block that has begun will add to it"});
        }
    }
};

AccessEvent word(const unsigned* semaphore, SourceLocation location) {
    return {reinterpret_cast<const char*>(semaphore), sizeof *semaphore, AccessKind::atomic,
            LocationId::of(location)};
}

} // namespace

void semaphore_wait(const unsigned* semaphore, unsigned value, SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::touch, word(semaphore, location));
    const SemaphoreWait wait{semaphore, value, caller.thread.number, location};
    if (!wait.over()) {
        caller.block.state<Semaphores>().waits.push_back(wait);
        caller.block.yield();
    }
    caller.tells(&Observer::pass_semaphore, semaphore, value);
}

void semaphore_add(unsigned* semaphore, SourceLocation location) {
    const Caller caller;
    if (caller.block.state<BulkStores>().of_thread[caller.thread.number].unfinished()) {
        caller.block.refuse(
            FaultKind::race,
            "race: another block may go on while TMA is still writing what this thread told it to "
            "store or add",
            "semaphore_add", location,
            "call bulk_wait first: bulk_wait_read only says that the data have been read");
    }
    caller.tells(&Observer::access, word(semaphore, location));
    caller.tells(&Observer::add_to_semaphore, semaphore);
    __atomic_fetch_add(semaphore, 1, __ATOMIC_RELEASE);
    workforce().changed();
}

// Watched as a relaxed addition between two fences. These order a little more than the addition
// does: a flag that this thread sets later hands on what came before them, too.
unsigned semaphore_fetch_add(unsigned* semaphore, SourceLocation location) {
    __threadfence();
    const unsigned before = atomicAdd(semaphore, 1, location);
    __threadfence();
    return before;
}

} // namespace flash::simt
