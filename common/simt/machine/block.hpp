// One CUDA block at work: its threads as fibers, whose turn it is, and what they wait for.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/collective.hpp"
#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/faulty_access.hpp"
#include "common/simt/machine/fiber.hpp"
#include "common/simt/machine/grid.hpp"
#include "common/simt/machine/instruction_state.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/shared_memory.hpp"
#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {

/// What a thread saw when it looked at values that other threads may change: by atomic operations
/// or volatile loads. Who waits for several values looks at one after the other.
struct Look {
    struct Seen {
        const void* address = nullptr;
        uint64_t value = 0;
    };
    std::array<Seen, 4> seen{}; // the latest that differ
    unsigned oldest = 0;        // of them
    LocationId origin;          // of the last look
    unsigned times = 0;         // that it has seen nothing new, one after the other

    Seen* at(const void* address) {
        Seen* const found = std::ranges::find(seen, address, &Seen::address);
        return found == seen.end() ? nullptr : found;
    }
    bool has_seen(const void* address) const {
        return std::ranges::count(seen, address, &Seen::address) != 0;
    }
};

struct Thread {
    Fiber fiber; // outlives the thread
    uint3 index{};
    unsigned number = 0; // x fastest; its warp is number / 32
    const void* stack_top = nullptr;
    bool finished = false;
    bool locals_observed = false;  // an observer asks for accesses to its local variables
    bool dropped = false;          // it has stopped in the middle of the kernel
    uint32_t call = 0;             // that its device function was called by; 0: it is in the kernel
    std::vector<uint32_t> calls{}; // those before
    Look look{};
    unsigned looks = 0;      // of any kind
    LocationId last_write{}; // to memory that others see
    // of a struct or a range of bytes, piece by piece; else nothing
    std::span<const char> copied{};
};

enum class Space : uint8_t { global, shared, elsewhere };

/// Lanes of a warp that have arrived at one collective.
struct PendingCollective {
    CollectiveKind kind;
    uint32_t mask;    // who must come
    uint32_t arrived; // who has
    const char* operation;
    SourceLocation location;
    Combine combine;
};

struct Warp {
    uint32_t ready = 0;    // lanes that can run
    uint32_t all = 0;      // lanes that there are
    uint32_t alive = 0;    // those that have not left the kernel
    uint32_t spinning = 0; // lanes that have given way: what they look at has not changed
    std::vector<PendingCollective> pending;
    Operands operands{}; // a lane waits in one meeting at a time
};

/// Threads of several warps that have arrived at one place.
struct PendingBarrier {
    const char* operation = "";
    SourceLocation location;
    unsigned arrived = 0;
    std::array<uint32_t, 32> lanes{}; // of each warp of the block
};

struct Warpgroup {
    PendingBarrier barrier;
    WarpgroupOperands operands{};
};

/// Where lanes of a warp stand, and at what: "at __syncthreads", "running".
struct Standing {
    unsigned warp;
    uint32_t lanes;
    std::string what;
    std::optional<LocationId> place;
};

/// Runs blocks one after the other on the OS thread that made it. Everything that a kernel calls
/// ends up here.
class Block {
  public:
    /// Who looks on from the next block on; nobody when it is empty.
    void observe(Observers observers) {
        observers_ = std::move(observers);
        known_.clear();
    }
    const Observers& observers() const { return observers_; }

    /// Memory for a block of so many threads. Throws std::bad_alloc.
    void reserve(unsigned threads) { stacks_.reserve(threads); }

    /// Runs one block from beginning to end; returns what was wrong with it.
    std::optional<Fault> run(const Launch& launch, const Kernel& kernel, uint3 index);

    // Called by the current thread of the block.
    Thread& current() const { return *current_; }
    Thread& thread(unsigned number) { return threads_[number]; }
    const Thread& thread(unsigned number) const { return threads_[number]; }
    unsigned thread_count() const { return thread_count_; }

    /// What the block remembers of an instruction.
    template <class State> State& state() {
        const size_t index = state_index<State>();
        if (index >= states_.size()) {
            states_.resize(index + 1);
        }
        if (states_[index] == nullptr) {
            states_[index] = std::make_unique<State>();
            states_[index]->begin_block(thread_count_);
        }
        return static_cast<State&>(*states_[index]);
    }

    unsigned first_alive() const {
        const auto warp =
            std::ranges::find_if(warps_, [](const Warp& one) { return one.alive != 0; });
        return static_cast<unsigned>(warp - warps_.begin()) * 32 +
               static_cast<unsigned>(std::countr_zero(warp->alive));
    }

    const Launch& launch() const { return *launch_; }
    uint3 index() const { return index_; }
    const Kernel& kernel() const { return *kernel_; }
    const SharedMemory& shared() const { return shared_; }
    Space space_of(const char* address) const {
        return global_.arena.contains(address)                             ? Space::global
               : shared_.is_dynamic(address) || shared_.is_static(address) ? Space::shared
               : global_.is_variable(address)                              ? Space::global
                                                                           : Space::elsewhere;
    }

    /// All threads of the block meet; returns for how many of them `predicate` holds.
    int barrier(const char* operation, SourceLocation location, bool predicate);

    /// The lanes of `mask` meet; the last one executes `combine` for all of them.
    void collective(CollectiveKind kind, const char* operation, SourceLocation location,
                    uint32_t mask, void* operand, Combine combine);

    /// The 128 threads of the current one's warpgroup meet; the last one executes `combine` for all
    /// of them.
    void meet_warpgroup(const char* operation, SourceLocation location, void* operand,
                        WarpgroupCombine combine);

    /// A work of the current thread begins beside it, or `count` of them; they are numbered from
    /// that on.
    AsyncWork new_work(const char* operation, SourceLocation location, uint32_t count = 1) {
        return {std::exchange(works_, works_ + count), current_->number, operation, location};
    }

    /// All have come to a barrier: those who wait there go on.
    void end_phase(const void* barrier, std::vector<WaitingThread>& waiting);

    /// Whether the block that has just run stopped because it waited for other blocks.
    bool stopped_for_blocks() const;

    /// Lets others go on; returns when it is the current thread's turn again.
    void yield();

    /// The current thread has looked at a value that another one may change. Who has seen the same
    /// a few times gives way: to others of the block, then to other blocks.
    void look(const void* address, uint64_t value, LocationId origin) {
        Look& last = current_->look;
        Look::Seen* const seen = last.at(address);
        last.origin = origin;
        if (seen == nullptr || seen->value != value) {
            (seen == nullptr ? last.seen[last.oldest++ % last.seen.size()] : *seen) = {address,
                                                                                       value};
            last.times = 0;
            ++progress_;
        }
        if (++last.times % looks_a_turn == 0 || ++current_->looks % many_looks == 0) [[unlikely]] {
            spin();
        }
    }
    /// The same at a volatile load, which comes next: memory that was read before can be read.
    void look(const void* address, unsigned bytes, LocationId origin) {
        uint64_t value = 0;
        if (current_->look.has_seen(address)) {
            __builtin_memcpy(&value, address, std::min<size_t>(bytes, sizeof value));
        }
        look(address, value, origin);
    }

    /// The current thread gives way like one that has seen the same a few times.
    void spin();

    /// From here on this state hears of meetings and of writes; null: nobody does.
    void let_hear(InstructionState* state) { hears_ = state; }

    /// The current thread has written what others see.
    void note_write(LocationId origin) {
        current_->last_write = origin;
        if (hears_ != nullptr) [[unlikely]] {
            hears_->has_written(*this, origin);
        }
    }

    void release(unsigned thread) { release(thread / 32, 1u << thread % 32); } // it may go on

    /// Stops the block: the current thread never returns from here. But when the run goes on after
    /// faults, a check of an access leaves by an exception, and the access does nothing.
    [[noreturn]] void stop(Fault fault);

    /// The same for a fault after which the thread can go on: returns if the run does.
    void report(Fault fault);

    /// The same for a fault of a thread that cannot: only this one stops if the run goes on.
    [[noreturn]] void stop_thread(Fault fault);

    /// What the current thread does is legal but doubtful: see warn() in fault.hpp.
    void warn(Fault warning);

    /// Whether a fault or warning like this has been found in the launch before, and is told
    /// already.
    bool knows(FaultKind kind, LocationId place, LocationId other) const {
        return known_.contains({kind, place, other});
    }

    /// The current thread is about to write where another one has written, and nothing orders them:
    /// a fault when the value differs, and else a warning. That is known once it has written.
    void suspect(Fault fault, const AccessEvent& access);

    /// Whether this is the check of an access that the current thread is about to make itself.
    bool checks_access() const { return checks_access_; }

    /// Faults and warnings that did not stop the block, since this was asked last.
    std::vector<Fault> take_found() { return std::exchange(found_, {}); }

    /// Whether the faulty access before this one, which did nothing, is still to be settled.
    bool is_unsettled() const { return faulty_.is_under_way(); }

    /// The current thread makes an access: calls `check()`, which may stop().
    template <class Check> void check_access(const AccessEvent& access, Check check) {
        if (faulty_.is_under_way()) [[unlikely]] {
            settle(access.origin);
        }
        checks_access_ = true;
        takes_place_ = false;
        try {
            check();
        } catch (const FaultyAccess&) {
            pass_over(access);
        }
        checks_access_ = false;
    }

    /// Stops it, too: the current thread "calls <operation>", which cannot be.
    [[noreturn]] void refuse(FaultKind kind, const std::string& summary, const char* operation,
                             SourceLocation location, const char* hint = "");

    /// What a thread, or the current one, does at a line.
    ThreadAction place(unsigned thread, const std::string& action, LocationId origin) const {
        return {dim3(index_), dim3(threads_[thread].index), action, origin};
    }
    ThreadAction here(const std::string& action, SourceLocation location) const {
        return place(current_->number, action, LocationId::of(location).within(current_->call));
    }

    const Stacks& stacks() const { return stacks_; }

    // For another OS thread, which wants to know whether this block comes on: how often threads
    // have met, and how many have left the kernel, since the program began.
    uint64_t meetings() const { return meetings_.load(std::memory_order_relaxed); }
    uint64_t ends() const { return ends_.load(std::memory_order_relaxed); }

    /// Where all threads stand; the current one is at `running`. The block must not run meanwhile.
    std::vector<Standing> standing(LocationId running) const;

  private:
    using UseWaiting = std::function<void(const char* operation, SourceLocation location,
                                          const std::string& state, unsigned warp, uint32_t lanes)>;
    void for_each_waiting(const UseWaiting& use) const;
    void prepare();
    bool arrive(PendingBarrier& barrier, unsigned count, const char* operation,
                SourceLocation location, const char* apart);
    void open(PendingBarrier& barrier);
    unsigned choose();
    unsigned choose_beside(unsigned starved) const;
    Thread& next();
    void finish_current();
    void complete_barrier();
    bool resume_spinning();
    [[noreturn]] void serve(Thread& thread);
    void complete(unsigned warp, size_t slot);
    [[gnu::cold]] void tell_of_absent(unsigned warp, const PendingCollective& meeting);
    [[gnu::cold]] void tell_of_left(unsigned waiting, unsigned gone, const std::string& summary,
                                    const char* operation, LocationId place);
    [[noreturn, gnu::cold]] void stop_unnamed(const char* operation, SourceLocation location);
    [[noreturn, gnu::cold]] void stop_divergent(const char* operation, SourceLocation location,
                                                unsigned other, const char* other_operation,
                                                SourceLocation other_site, const char* apart);
    void release(unsigned warp, uint32_t lanes);
    bool goes_on();
    [[noreturn, gnu::cold]] void drop_current();
    [[gnu::cold]] void pass_over(const AccessEvent& access);
    void add_found(Fault fault);
    [[gnu::cold]] void settle();
    void settle(LocationId next);
    bool await_other_blocks();
    Fault stuck() const;
    uint64_t draw();

    static constexpr unsigned looks_a_turn = 4, many_looks = 4096;
    static constexpr unsigned turns_before_others = 64;

    GlobalSpace global_ = global_space();
    SharedMemory shared_;
    Fiber scheduler_; // run() itself
    Stacks stacks_;
    // the first of them are used; their fibers serve block after block
    std::vector<Thread> threads_{1024};
    std::array<Warp, 32> warps_;
    uint32_t ready_warps_ = 0;
    unsigned thread_count_ = 0;
    unsigned finished_ = 0;
    uint32_t spinning_warps_ = 0;
    unsigned resumed_ = 0;              // of those that spin, the last time
    unsigned turns_kept_ = 0;           // since other blocks came
    uint64_t progress_ = 0;             // of what threads saw
    uint64_t progress_then_ = 0;        // the last time that those who spin went on
    bool abandoned_ = false;            // another block has gone wrong
    InstructionState* hears_ = nullptr; // of the current block; mostly nobody
    PendingBarrier barrier_;
    int holds_ = 0;          // predicates among those that have come to the barrier
    int barrier_result_ = 0; // of the last time it was complete
    std::array<Warpgroup, 8> warpgroups_;
    std::vector<std::unique_ptr<InstructionState>> states_; // null: not used yet
    uint32_t works_ = 0;
    std::atomic<uint64_t> meetings_ = 0, ends_ = 0;
    Thread* current_ = nullptr;
    const Launch* launch_ = nullptr;
    const Kernel* kernel_ = nullptr;
    uint3 index_{};
    Schedule schedule_;
    uint64_t random_ = 0;
    Observers observers_;
    std::optional<Fault> fault_;
    bool can_go_on_ = false;     // after fault_
    bool checks_access_ = false; // of the current thread
    bool takes_place_ = false;   // the access whose fault was judged last
    std::vector<Fault> found_;   // that did not stop the block
    std::set<FaultKey> known_;   // of this launch
    FaultyAccesses faulty_;      // of the current thread
};

/// The thread whose turn it is.
[[gnu::always_inline]] inline Thread& Block::next() {
    unsigned number = 0;
    if (schedule_.kind == Schedule::in_order) [[likely]] {
        const auto warp = static_cast<unsigned>(std::countr_zero(ready_warps_));
        number = warp * 32 + static_cast<unsigned>(std::countr_zero(warps_[warp].ready));
    } else {
        number = choose();
    }
    Warp& warp = warps_[number / 32];
    warp.ready &= ~(1u << number % 32);
    if (warp.ready == 0) {
        ready_warps_ &= ~(1u << number / 32);
    }
    return threads_[number];
}

/// The last thread of a meeting gives way as well: whose turn it is, the schedule says.
[[gnu::always_inline]] inline void Block::yield() {
    Fiber& own = current_->fiber;
    if (faulty_.is_under_way()) [[unlikely]] {
        settle();
    }
    if (ready_warps_ == 0) [[unlikely]] {
        own.switch_to(scheduler_); // which finds out what they all wait for
        return;
    }
    current_ = &next();
    if (&current_->fiber != &own) [[likely]] {
        own.switch_to(current_->fiber);
    }
}

[[gnu::always_inline]] inline void Block::collective(CollectiveKind kind, const char* operation,
                                                     SourceLocation location, uint32_t mask,
                                                     void* operand, Combine combine) {
    Warp& warp = warps_[current_->number / 32];
    const unsigned lane = current_->number % 32;
    if ((mask >> lane & 1) == 0) {
        stop_unnamed(operation, location);
    }
    auto meeting = std::ranges::find(warp.pending, mask, &PendingCollective::mask);
    if (meeting == warp.pending.end()) {
        meeting = warp.pending.insert(meeting, {kind, mask, 0, operation, location, combine});
    } else if (!(meeting->location == location) || meeting->combine != combine) {
        stop_divergent(operation, location,
                       current_->number - lane +
                           static_cast<unsigned>(std::countr_zero(meeting->arrived)),
                       meeting->operation, meeting->location,
                       "lanes of one warp that must meet are at different places");
    }
    meeting->arrived |= 1u << lane;
    warp.operands[lane] = operand;
    if (meeting->arrived == (mask & warp.alive)) {
        complete(current_->number / 32, static_cast<size_t>(meeting - warp.pending.begin()));
    }
    yield();
}

/// The block that this OS thread runs, null when it runs none.
extern constinit thread_local Block* running_block;
inline Block& current_block() { return *running_block; }

/// The thread that has called the runtime, as long as that is at work.
struct Caller {
    RuntimeCode runtime;
    Block& block = current_block();
    Thread& thread = block.current();

    /// Tells the observers what this thread does.
    template <class... Parameters>
    void tells(void (Observer::*event)(unsigned, Parameters...),
               const std::type_identity_t<Parameters>&... what) const {
        block.observers().tell(event, thread.number, what...);
    }

    /// The same of an access: a faulty one does nothing if the run goes on.
    void makes(void (Observer::*event)(unsigned, const AccessEvent&),
               const AccessEvent& access) const {
        block.check_access(access, [&] { tells(event, access); });
    }
};

} // namespace flash::simt
