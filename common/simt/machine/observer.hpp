// Those who look on while a block runs. The machine tells them what happens, and knows no more of
// them than this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "common/simt/machine/collective.hpp"
#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/location_id.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

// What instructions tell of themselves (common/simt/instructions).
struct AsyncCopy;
struct BulkLoad;
struct BulkStore;
struct Wgmma;

enum class AccessKind : uint8_t { load, store, atomic };

/// What an atomic operation does with the value that it finds.
enum class Atomic : uint8_t {
    updates,
    overwrites, // an exchange, whose result is of no concern, as a rule
    compares    // atomicCAS
};

/// For which other threads an access or a fence counts (the scopes of the PTX memory model). An
/// access that is not `weak` may meet another such one: an atomic operation has the scope that its
/// name says, a volatile access that of the system.
enum class Scope : uint8_t { weak, block, device, system };

/// One access of one thread.
struct AccessEvent {
    const char* address;
    unsigned bytes;
    AccessKind kind;
    LocationId origin;
    Scope scope = Scope::weak;
    Atomic atomic = Atomic::updates; // if it is one

    bool reads() const { return kind != AccessKind::store && atomic != Atomic::overwrites; }
    bool compares() const { return kind == AccessKind::atomic && atomic == Atomic::compares; }
};

/// A row of 16 bytes that a lane names and its warp reads.
struct MatrixRow {
    unsigned thread;
    const void* address;
};

/// An instruction that a thread comes to, of those that no other event tells with their line.
struct Instruction {
    const char* operation;
    SourceLocation location;
    const void* at = nullptr; // the barrier, if it is one's
    // arrivals or bytes that are expected, groups that may stay under way, the phase that is waited
    // for
    int64_t number = 0;
};

/// Threads are named by their number in the block.
class Observer {
  public:
    virtual ~Observer() = default;

    virtual void begin_block() {}
    virtual std::optional<Fault> end_block() { return std::nullopt; }
    virtual void stopped(const Fault&) {} // the block, by a fault

    /// An access that the current thread is about to make.
    virtual void access(unsigned /*thread*/, const AccessEvent&) {}

    /// The same to one of its local variables, if somebody has asked for that
    /// (Thread::locals_observed).
    virtual void access_local(unsigned /*thread*/, const AccessEvent&) {}

    virtual void instruct(unsigned /*thread*/, const Instruction&) {}

    /// Its way through the code, branch by branch; told by kernels compiled with
    /// -fsanitize-coverage=trace-pc.
    virtual void visit(unsigned /*thread*/, LocationId) {}

    /// Lanes of a warp read rows together, 8 to a matrix.
    virtual void load_matrices(std::span<const MatrixRow>, SourceLocation) {}

    virtual void start_copy(const AsyncCopy&) {}
    virtual void wait_for_copies(unsigned /*thread*/, uint32_t /*count*/) {} // its first ones

    /// An access to the word of an mbarrier, or of a semaphore at which it waits. No counter counts
    /// it.
    virtual void touch(unsigned /*thread*/, const AccessEvent&) {}

    // What a thread does at an mbarrier. At a named barrier, too, threads release and acquire, and
    // a phase ends when all have come.
    virtual void make_mbarrier(unsigned /*thread*/, const void*) {}
    // it arrives
    virtual void release(unsigned /*thread*/, const void* /*mbarrier*/, SourceLocation) {}
    virtual void hand_on_copies(unsigned /*thread*/, uint32_t /*count*/, const void* /*mbarrier*/) {
    }
    virtual void end_phase(const void* /*mbarrier*/) {}
    // it asks for the end of this phase, the last one that has ended (at first -1) or the one
    // under way
    virtual void await(unsigned /*thread*/, const void* /*mbarrier*/, int64_t /*phase*/,
                       SourceLocation) {}
    virtual void acquire(unsigned /*thread*/, const void* /*mbarrier*/) {} // its wait is over

    // The copy engine and the tensor cores. Groups are counted by thread, from the block's
    // beginning.
    virtual void start_load(const BulkLoad&) {}
    virtual void land(const BulkLoad&) {} // its bytes count at the mbarrier now
    virtual void start_store(const BulkStore&) {}
    // its first ones; shared memory is free
    virtual void wait_for_stores(unsigned /*thread*/, uint32_t /*groups*/) {}
    virtual void start_wgmma(const Wgmma&) {}
    virtual void wait_for_wgmma(unsigned /*thread*/, uint32_t /*groups*/) {} // its first ones
    virtual void fence_wgmma(unsigned /*thread*/) {}
    virtual void fence_proxy(unsigned /*thread*/) {}
    virtual void fence_mbarriers(unsigned /*thread*/) {}

    // By strong accesses, which have a scope, threads tell each other how far they are: what a
    // thread did before a fence counts as done for one who reads what it writes after the fence,
    // and then comes to a fence. `replaces`: the write is no part of an atomic operation.
    virtual void strong_read(unsigned /*thread*/, const void* /*address*/, Scope) {}
    virtual void strong_write(unsigned /*thread*/, const void* /*address*/, Scope,
                              bool /*replaces*/) {}
    virtual void fence(unsigned /*thread*/, Scope) {}
    virtual void end_thread(unsigned /*thread*/) {}
    virtual void go_on() {} // other blocks have run while this one waited

    // What a thread does at a semaphore; its addition is an access, too.
    virtual void pass_semaphore(unsigned /*thread*/, const unsigned* /*semaphore*/,
                                unsigned /*value*/) {}
    virtual void add_to_semaphore(unsigned /*thread*/, const unsigned* /*semaphore*/) {}

    virtual void barrier(SourceLocation) {} // all threads of the block have met
    virtual void meet(CollectiveKind, unsigned /*warp*/, uint32_t /*lanes*/, SourceLocation) {}

    /// The lanes of a warp that are left have all come to one place, or there are none left.
    virtual void warp_together(unsigned /*warp*/) {}
};

/// Those who look on at one block.
struct Observers : std::vector<Observer*> {
    /// tell(&Observer::acquire, thread, barrier) tells each of them.
    template <class... Parameters>
    void tell(void (Observer::*event)(Parameters...),
              const std::type_identity_t<Parameters>&... what) const {
        for (Observer* const observer : *this) {
            (observer->*event)(what...);
        }
    }
};

/// Who is told of what instrumented code does on this OS thread: null unless an observed kernel is
/// at work.
extern constinit thread_local const Observers* active_observers;

/// Whether this OS thread executes a kernel's own code, neither the runtime nor the program's.
extern constinit thread_local bool kernel_at_work;

/// While it lives the runtime is at work, not the kernel, and instrumented code tells nobody. Such
/// code is in the runtime as well: of an inline function that a kernel's file and the runtime both
/// use, like std::vector's, the linker keeps one copy, and it may be the instrumented one.
class RuntimeCode {
  public:
    RuntimeCode() : before_(active_observers), in_kernel_(kernel_at_work) {
        active_observers = nullptr;
        kernel_at_work = false;
    }
    ~RuntimeCode() {
        active_observers = before_;
        kernel_at_work = in_kernel_;
    }
    RuntimeCode(const RuntimeCode&) = delete;
    RuntimeCode& operator=(const RuntimeCode&) = delete;

  private:
    const Observers* before_;
    bool in_kernel_;
};

} // namespace flash::simt
