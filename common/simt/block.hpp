// One CUDA block at work: its threads as fibers, whose turn it is, and what they wait for.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/simt/async_copy.hpp"
#include "common/simt/collectives.hpp"
#include "common/simt/fault.hpp"
#include "common/simt/fiber.hpp"
#include "common/simt/launch.hpp"
#include "common/simt/options.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/traps.hpp"
#include "common/simt/watcher.hpp"

namespace flash::simt {

/// What a thread waits in, for messages.
struct Wait {
    const char* operation = nullptr; // null: it does not wait
    Site site;
    uint32_t mask = 0; // lanes of a warp collective; 0: the whole block
};

struct Thread {
    Fiber fiber;
    uint3 index{};
    unsigned number = 0; // x fastest; its warp is number / 32
    bool finished = false;
    Wait wait;
    AsyncCopies copies;
};

/// Lanes of a warp that have arrived at one collective.
struct Rendezvous {
    Meeting kind;
    uint32_t mask;    // who must come
    uint32_t arrived; // who has
    const char* operation;
    Site site;
    Combine combine;
    Operands operands;
};

struct Warp {
    uint32_t ready = 0; // lanes that can run
    uint32_t alive = 0; // lanes that have not left the kernel
    uint32_t at_barrier = 0;
    std::vector<Rendezvous> pending;
};

/// Runs blocks one after the other on the OS thread that made it. Everything that a kernel calls ends up here.
class Block {
  public:
    Block() : watcher_(*this) {}

    /// Runs one block from beginning to end, under its watcher if `watched`; returns what was wrong with it.
    std::optional<Fault> run(const Launch& launch, const Kernel& kernel, uint3 index, bool watched);

    // Called by the current thread of the block.
    const Thread& current() const { return *current_; }
    Thread& current() { return *current_; }
    const Thread& thread(unsigned number) const { return threads_[number]; }
    const Launch& launch() const { return *launch_; }
    uint3 index() const { return index_; }
    const Kernel& kernel() const { return *kernel_; }
    const SharedMemory& shared() const { return shared_; }
    Watcher& watcher() { return watcher_; }
    Watcher* watching() const { return watching_; } // null when this block is not watched

    /// All threads of the block meet; returns for how many of them `predicate` holds.
    int barrier(const char* operation, Site site, bool predicate);

    /// The lanes of `mask` meet; the last one executes `combine` for all of them.
    void collective(Meeting kind, const char* operation, Site site, uint32_t mask, void* operand, Combine combine);

    /// Stops the block: the current thread never returns from here.
    [[noreturn]] void stop(Fault fault);

    /// What the current thread does at a line.
    Place here(const std::string& action, Site site) const;

    bool is_stack_of(const Thread& thread, const void* address) const;
    bool is_stack_guard(const Thread& thread, const void* address) const; // the addresses below the stack

  private:
    struct Barrier {
        unsigned arrived = 0;
        Site site;
        unsigned first = 0; // thread that came first
        int holds = 0;      // predicates among those that came
        int result = 0;     // of the last time it was complete
    };

    void prepare();
    Thread& next();
    void finish_current();
    void complete(unsigned warp, size_t slot);
    void wait_in(const Wait& wait);
    void release(unsigned warp, uint32_t lanes);
    Fault stuck() const;
    uint64_t draw();

    SharedMemory shared_;
    TrapStack trap_stack_;
    std::vector<Stack> stacks_;
    std::deque<Thread> threads_; // as many as any block had so far: a fiber outlives its thread and serves the next
    std::array<Warp, 32> warps_;
    uint32_t ready_warps_ = 0;
    unsigned thread_count_ = 0;
    unsigned finished_ = 0;
    Barrier barrier_;
    Thread* current_ = nullptr;
    const Launch* launch_ = nullptr;
    const Kernel* kernel_ = nullptr;
    uint3 index_{};
    Schedule schedule_;
    uint64_t random_ = 0;
    Watcher watcher_;
    Watcher* watching_ = nullptr;
    std::optional<Fault> fault_;
};

/// The block that this OS thread runs.
Block& current_block();
bool is_running_block();

} // namespace flash::simt
