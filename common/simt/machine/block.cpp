#include "common/simt/machine/block.hpp"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <exception>
#include <map>
#include <ranges>
#include <span>
#include <sstream>
#include <utility>

#include "common/simt/machine/location_id.hpp"
#include "common/simt/machine/watchdog.hpp"
#include "common/simt/machine/workforce.hpp"

namespace flash::simt {
namespace {

unsigned lowest(uint32_t bits) { return static_cast<unsigned>(std::countr_zero(bits)); }
unsigned highest(uint32_t bits) { return 31 - static_cast<unsigned>(std::countl_zero(bits)); }

/// One of the set bits of `bits`, by a random number.
unsigned any_bit(uint32_t bits, unsigned random) {
    for (unsigned skip = random % static_cast<unsigned>(std::popcount(bits)); skip > 0; --skip) {
        bits &= bits - 1;
    }
    return lowest(bits);
}

std::string so_many(unsigned some, unsigned all) {
    return std::to_string(some) + " of " + std::to_string(all);
}

/// One thread counts, others may look.
void count_one(std::atomic<uint64_t>& number) {
    number.store(number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/// The states of the instructions that a block has used.
auto used(const std::vector<std::unique_ptr<InstructionState>>& states) {
    return states | std::views::filter([](const auto& state) { return state != nullptr; });
}

/// Whether a thread has left the kernel after it had done some of its work.
bool has_run_past(const Thread& thread) {
    return thread.finished && !thread.dropped && thread.last_write != LocationId();
}

} // namespace

constinit thread_local Block* running_block = nullptr;
constinit thread_local const Observers* active_observers = nullptr;
constinit thread_local bool kernel_at_work = false;

std::optional<Fault> Block::run(const Launch& launch, const Kernel& kernel, uint3 index) {
    launch_ = &launch;
    kernel_ = &kernel;
    index_ = index;
    prepare();
    observers_.tell(&Observer::begin_block);
    running_block = this; // from here on nothing throws
    while (finished_ < thread_count_ && !fault_ && !abandoned_) {
        if (ready_warps_ == 0 && !resume_spinning() && !await_other_blocks()) {
            fault_ = fault_ || abandoned_ ? fault_ : stuck();
            break;
        }
        current_ = &next();
        scheduler_.switch_to(current_->fiber);
        while (fault_ && goes_on()) {
            scheduler_.switch_to(current_->fiber);
        }
    }
    for (Observer* const observer : observers_) {
        if (!fault_ && !abandoned_) {
            fault_ = observer->end_block();
            can_go_on_ = true;
            goes_on();
        }
    }
    current_ = nullptr;
    running_block = nullptr;
    if (fault_ || abandoned_) {
        for (Thread& thread : threads_) { // they stand anywhere in the kernel
            thread.fiber.forget();
        }
    }
    if (fault_) {
        fault_->kernel = kernel.name;
        observers_.tell(&Observer::stopped, *fault_);
    }
    faulty_ = {};
    return std::exchange(fault_, std::nullopt);
}

void Block::prepare() {
    thread_count_ = static_cast<unsigned>(volume(launch_->block));
    shared_.reset(*kernel_, launch_->smem_bytes);
    schedule_ = options().schedule;
    // Every block draws its own numbers, so that they do not depend on which OS thread runs it.
    random_ = schedule_.number ^
              (index_.x + 0x9e3779b97f4a7c15u * (index_.y + 0x9e3779b97f4a7c15u * index_.z));
    finished_ = 0;
    spinning_warps_ = 0;
    resumed_ = 0;
    abandoned_ = false;
    barrier_ = {};
    holds_ = 0;
    hears_ = nullptr;
    warpgroups_.fill({});
    for (const auto& state : used(states_)) {
        state->begin_block(thread_count_);
    }
    works_ = 0;
    checks_access_ = false;
    ready_warps_ = 0;
    warps_.fill({});
    for (unsigned number = 0; number < thread_count_; ++number) {
        Thread& thread = threads_[number];
        if (thread.dropped) {
            thread.fiber.forget();
        }
        thread.calls.clear();
        Thread fresh{thread.fiber, element(launch_->block, number), number, stacks_.top(number)};
        fresh.calls.swap(thread.calls);
        thread = std::move(fresh);
        warps_[number / 32].alive |= 1u << number % 32;
        warps_[number / 32].all |= 1u << number % 32;
        release(number / 32, 1u << number % 32);
        if (!thread.fiber.started()) {
            thread.fiber.start(
                stacks_.top(number), stacks_.size(number),
                [](void* self) { current_block().serve(*static_cast<Thread*>(self)); }, &thread);
        }
    }
}

/// What a fiber does: a thread of this block, then one of the next.
void Block::serve(Thread& thread) {
    while (true) {
        std::string failure; // of the runtime: out of memory, say. A kernel throws nothing
        active_observers = observers_.empty() ? nullptr : &observers_;
        kernel_at_work = true;
        try {
            launch_->call(launch_->context);
        } catch (const std::exception& error) {
            failure = error.what();
        }
        active_observers = nullptr;
        kernel_at_work = false;
        observers_.tell(&Observer::end_thread, thread.number);
        if (!failure.empty()) {
            stop(Fault(FaultKind::invalid_access, "the kernel could not be executed: " + failure));
        }
        if (options().detect) {
            for (const auto& state : used(states_)) {
                state->check_leaving(*this, thread.number);
            }
        }
        if (faulty_.is_under_way()) {
            settle();
        }
        finish_current();
        thread.fiber.switch_to(finished_ < thread_count_ && ready_warps_ != 0
                                   ? (current_ = &next())->fiber
                                   : scheduler_);
    }
}

/// The number of the thread whose turn it is by the schedule; at least one can run.
unsigned Block::choose() {
    if (schedule_.kind == Schedule::starve) {
        return choose_beside(static_cast<unsigned>(schedule_.number));
    }
    const uint64_t random = schedule_.kind == Schedule::shuffle ? draw() : 0;
    const auto one_of = [this](uint32_t bits, uint64_t number) {
        return schedule_.kind == Schedule::shuffle   ? any_bit(bits, static_cast<unsigned>(number))
               : schedule_.kind == Schedule::reverse ? highest(bits)
                                                     : lowest(bits);
    };
    const bool ahead =
        schedule_.kind == Schedule::one_warp_ahead && (ready_warps_ >> schedule_.number & 1) != 0;
    const unsigned warp =
        ahead ? static_cast<unsigned>(schedule_.number) : one_of(ready_warps_, random >> 32);
    return warp * 32 + one_of(warps_[warp].ready, random);
}

/// The lowest thread that can run, and `starved` when there is no other.
unsigned Block::choose_beside(unsigned starved) const {
    for (uint32_t warps = ready_warps_; warps != 0; warps &= warps - 1) {
        const unsigned warp = lowest(warps);
        uint32_t lanes = warps_[warp].ready;
        if (warp == starved / 32) {
            lanes &= ~(1u << starved % 32);
        }
        if (lanes != 0) {
            return warp * 32 + lowest(lanes);
        }
    }
    return starved;
}

uint64_t Block::draw() { // SplitMix64
    uint64_t z = random_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void Block::release(unsigned warp, uint32_t lanes) {
    warps_[warp].ready |= lanes;
    ready_warps_ |= 1u << warp;
}

/// The current thread comes where `count` threads meet; true when it is the last. `apart` says what
/// is wrong when some are elsewhere.
bool Block::arrive(PendingBarrier& barrier, unsigned count, const char* operation,
                   SourceLocation location, const char* apart) {
    if (barrier.arrived == 0) {
        barrier.operation = operation;
        barrier.location = location;
    } else if (!(barrier.location == location) || barrier.operation != operation) {
        const auto warp =
            std::ranges::find_if(barrier.lanes, [](uint32_t lanes) { return lanes != 0; });
        stop_divergent(operation, location,
                       static_cast<unsigned>(warp - barrier.lanes.begin()) * 32 + lowest(*warp),
                       barrier.operation, barrier.location, apart);
    }
    const unsigned own = current_->number / 32;
    barrier.lanes[own] |= 1u << current_->number % 32;
    if (barrier.lanes[own] == warps_[own].alive) {
        observers_.tell(&Observer::warp_together, own);
    }
    return ++barrier.arrived == count;
}

/// All who have come to a barrier may go on.
void Block::open(PendingBarrier& barrier) {
    barrier.arrived = 0;
    count_one(meetings_);
    for (unsigned warp = 0; warp * 32 < thread_count_; ++warp) {
        if (barrier.lanes[warp] != 0) {
            release(warp, std::exchange(barrier.lanes[warp], 0));
        }
    }
}

void Block::stop_unnamed(const char* operation, SourceLocation location) {
    refuse(FaultKind::divergent_barrier,
           "lane " + std::to_string(current_->number % 32) + " calls " + operation +
               " with a mask that does not name it",
           operation, location);
}

void Block::stop_divergent(const char* operation, SourceLocation location, unsigned other,
                           const char* other_operation, SourceLocation other_site,
                           const char* apart) {
    const bool one_line = location.line == other_site.line && !(location == other_site);
    stop({FaultKind::divergent_barrier, std::string(apart) + (one_line ? " of one line" : ""),
          here(std::string("calls ") + operation, location),
          place(other, std::string("waits in ") + other_operation, LocationId::of(other_site))});
}

/// Lanes have met: the last one executes for all.
void Block::complete(unsigned warp_number, size_t slot) {
    Warp& warp = warps_[warp_number];
    const PendingCollective meeting = warp.pending[slot];
    warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(slot));
    if (meeting.arrived != (meeting.mask & warp.all) && options().detect) [[unlikely]] {
        tell_of_absent(warp_number, meeting);
    }
    if (meeting.kind == CollectiveKind::sync && hears_ != nullptr) [[unlikely]] {
        hears_->have_met(*this, warp_number, meeting.arrived);
    }
    if (meeting.combine != nullptr) {
        meeting.combine(warp.operands, meeting.arrived);
    }
    if (meeting.arrived == warp.alive) {
        observers_.tell(&Observer::warp_together, warp_number);
    }
    count_one(meetings_);
    observers_.tell(&Observer::meet, meeting.kind, warp_number, meeting.arrived, meeting.location);
    release(warp_number, meeting.arrived);
}

/// Threads met, and others that had to come had left the kernel. Since Volta nobody waits for
/// those, so one that left at once is no matter for more than a warning. But one that has done a
/// part of the kernel's work has run past the meeting: that is in a branch or a loop which not all
/// take.
void Block::tell_of_left(unsigned waiting, unsigned gone, const std::string& summary,
                         const char* operation, LocationId where) {
    const ThreadAction waits = place(waiting, std::string("waits in ") + operation, where);
    if (!has_run_past(threads_[gone])) {
        warn({FaultKind::early_exit, summary, waits,
              "a GPU does not wait for them either, since Volta; let them stay, and skip their "
              "work"});
        return;
    }
    report({FaultKind::divergent_barrier, summary, waits,
            place(gone, "has left the kernel, and has written last", threads_[gone].last_write),
            "all threads must come here, or none: take it out of the branch or loop, or let all go "
            "through that"});
}

/// Lanes met, and others that the mask names never came.
void Block::tell_of_absent(unsigned warp_number, const PendingCollective& meeting) {
    const uint32_t absent = meeting.mask & warps_[warp_number].all & ~meeting.arrived;
    unsigned gone = warp_number * 32 + lowest(absent);
    for (uint32_t lanes = absent; lanes != 0; lanes &= lanes - 1) {
        if (has_run_past(threads_[warp_number * 32 + lowest(lanes)])) {
            gone = warp_number * 32 + lowest(lanes);
            break;
        }
    }
    std::ostringstream mask;
    mask << "0x" << std::hex << meeting.mask;
    tell_of_left(warp_number * 32 + lowest(meeting.arrived), gone,
                 "lanes meet with a mask that names others, which left the kernel without coming\n"
                 "  the mask is " +
                     mask.str() + ", and " +
                     plural(static_cast<unsigned>(std::popcount(absent)), "lane") +
                     " of it left, the first is thread " +
                     to_string(dim3(threads_[warp_number * 32 + lowest(absent)].index)),
                 meeting.operation, LocationId::of(meeting.location));
}

int Block::barrier(const char* operation, SourceLocation location, bool predicate) {
    observers_.tell(&Observer::instruct, current_->number, {operation, location, this});
    holds_ += predicate ? 1 : 0;
    if (arrive(barrier_, thread_count_ - finished_, operation, location,
               "threads of one block are at different barriers")) {
        complete_barrier();
    }
    yield();
    return barrier_result_;
}

/// Threads that have left are not waited for.
void Block::complete_barrier() {
    if (finished_ > 0) {
        const auto warp =
            std::ranges::find_if(barrier_.lanes, [](uint32_t lanes) { return lanes != 0; });
        const unsigned first =
            static_cast<unsigned>(warp - barrier_.lanes.begin()) * 32 + lowest(*warp);
        const std::span<const Thread> threads(threads_.data(), thread_count_);
        const auto first_gone = std::ranges::find(threads, true, &Thread::finished);
        auto gone = std::ranges::find_if(threads, has_run_past);
        if (gone == threads.end()) {
            gone = first_gone;
        }
        tell_of_left(first, gone->number,
                     "threads meet at a barrier that others of the block left the kernel without "
                     "reaching\n  " +
                         plural(finished_, "thread") + " left the kernel, the first is " +
                         to_string(dim3(first_gone->index)),
                     barrier_.operation, LocationId::of(barrier_.location));
    }
    for (unsigned warp = 0; hears_ != nullptr && warp * 32 < thread_count_; ++warp) {
        hears_->have_met(*this, warp, warps_[warp].all);
    }
    observers_.tell(&Observer::barrier, barrier_.location);
    barrier_result_ = std::exchange(holds_, 0);
    open(barrier_);
}

void Block::meet_warpgroup(const char* operation, SourceLocation location, void* operand,
                           WarpgroupCombine combine) {
    const unsigned first = current_->number / 128 * 128;
    if (first + 128 > thread_count_) {
        refuse(FaultKind::divergent_barrier,
               std::string(operation) +
                   " needs a warpgroup of 128 threads, and the last one of this block has fewer",
               operation, location);
    }
    Warpgroup& own = warpgroups_[first / 128];
    own.operands[current_->number - first] = operand;
    if (arrive(own.barrier, 128, operation, location,
               "threads of one warpgroup that must meet are at different places")) {
        open(own.barrier);
        combine(first, own.operands, location);
    }
    yield();
}

void Block::spin() {
    const unsigned warp = current_->number / 32;
    warps_[warp].spinning |= 1u << current_->number % 32;
    spinning_warps_ |= 1u << warp;
    yield();
}

/// Nobody can run but those who spin and those who wait for other blocks: true when some can go on.
/// Where all those who spin have seen the same as the last time, other blocks come first.
bool Block::resume_spinning() {
    if (spinning_warps_ == 0) {
        return false;
    }
    if (std::optional<Fault> fault = Watchdog::hold_spinning_block()) {
        fault_ = std::move(fault);
        return false;
    }
    unsigned spinning = 0;
    for (const Warp& warp : warps_) {
        spinning += static_cast<unsigned>(std::popcount(warp.spinning));
    }
    bool progress = spinning != resumed_ || progress_ != progress_then_;
    for (const auto& state : used(states_)) {
        progress |= state->waits_for_blocks() && state->release_threads(*this);
    }
    if (progress) {
        workforce().progress();
    }
    // What changes may change for this block alone, for ever: from time to time others come too.
    if (!progress || ++turns_kept_ % turns_before_others == 0) {
        switch (workforce().give_way()) {
        case Workforce::Turn::come:
            observers_.tell(&Observer::go_on);
            break;
        case Workforce::Turn::none:
            abandoned_ = true;
            return false;
        case Workforce::Turn::in_vain:
            if (!progress) {
                fault_ = stuck();
                return false;
            }
        }
    }
    resumed_ = spinning;
    progress_then_ = progress_;
    for (unsigned number = 0; number < warps_.size(); ++number) {
        if (const uint32_t lanes = std::exchange(warps_[number].spinning, 0); lanes != 0) {
            release(number, lanes);
        }
    }
    spinning_warps_ = 0;
    return true;
}

bool Block::stopped_for_blocks() const {
    return std::ranges::any_of(used(states_),
                               [](const auto& state) { return state->waits_for_blocks(); });
}

/// Nobody can run but those who wait for other blocks: true when one of them can go on.
bool Block::await_other_blocks() {
    return stopped_for_blocks() && workforce().wait_until([this] {
        bool released = false;
        for (const auto& state : used(states_)) {
            released |= state->release_threads(*this);
        }
        return released;
    });
}

void Block::finish_current() {
    count_one(ends_);
    current_->finished = true;
    ++finished_;
    const unsigned number = current_->number / 32;
    Warp& warp = warps_[number];
    warp.alive &= ~(1u << current_->number % 32);
    // lanes that have left are not waited for, in any meeting
    for (size_t i = 0; i < warp.pending.size();) {
        const PendingCollective& meeting = warp.pending[i];
        if (meeting.arrived == (meeting.mask & warp.alive)) {
            complete(number, i); // takes it out of the list
        } else {
            ++i;
        }
    }
    if (warp.alive == 0) {
        observers_.tell(&Observer::warp_together, number);
    }
    if (barrier_.arrived > 0 && barrier_.arrived == thread_count_ - finished_) {
        complete_barrier();
    }
}

void Block::stop(Fault fault) {
    fault_ = std::move(fault);
    can_go_on_ = checks_access_;
    current_->fiber.switch_to(scheduler_);
    throw FaultyAccess(); // nobody switches back unless the run goes on
}

void Block::report(Fault fault) {
    fault_ = std::move(fault);
    can_go_on_ = true;
    current_->fiber.switch_to(scheduler_);
}

void Block::stop_thread(Fault fault) {
    if (!options().keep_going) {
        stop(std::move(fault));
    }
    add_found(std::move(fault));
    drop_current();
}

/// Called by the scheduler, which has the stack for it. Whether the run goes on after fault_, which
/// is then among those that were found or is ignored.
bool Block::goes_on() {
    if (!fault_ || !can_go_on_) {
        return false;
    }
    const bool ignored = is_ignored(*fault_);
    if (!ignored && !options().keep_going) {
        return false;
    }
    takes_place_ = ignored && fault_->kind != FaultKind::out_of_bounds &&
                   fault_->kind != FaultKind::misaligned;
    if (!ignored) {
        add_found(*std::move(fault_));
    }
    fault_.reset();
    return true;
}

/// The current thread stands in the middle of the kernel and cannot go on, but others can.
void Block::drop_current() {
    active_observers = nullptr;
    kernel_at_work = false;
    checks_access_ = false;
    faulty_ = {};
    current_->dropped = true;
    finish_current();
    Fiber& own = current_->fiber;
    own.switch_to(finished_ < thread_count_ && ready_warps_ != 0 ? (current_ = &next())->fiber
                                                                 : scheduler_);
    std::abort(); // nobody switches back
}

void Block::add_found(Fault fault) {
    if (known_.insert(key_of(fault)).second) {
        fault.kernel = kernel_->name;
        found_.push_back(std::move(fault));
    }
}

void Block::warn(Fault warning) {
    if (options().strict) {
        report(std::move(warning));
        return;
    }
    warning.is_warning = true;
    add_found(std::move(warning));
}

void Block::suspect(Fault fault, const AccessEvent& access) {
    faulty_.suspect(std::move(fault), const_cast<char*>(access.address), access.bytes,
                    access.origin);
}

void Block::pass_over(const AccessEvent& access) {
    checks_access_ = false;
    if (!takes_place_ &&
        !faulty_.pass_over(const_cast<char*>(access.address), access.bytes, access.origin)) {
        drop_current();
    }
}

/// Several accesses at one place may come before any of them happens: the pieces of a struct.
void Block::settle(LocationId next) {
    if (next != faulty_.origin()) {
        settle();
    }
}

/// The suspected accesses are over.
void Block::settle() {
    for (FaultyAccesses::Suspicion& one : faulty_.end()) {
        if (!one.has_changed()) {
            Fault& fault = one.fault;
            const std::string place = fault.summary.substr(fault.summary.find(','));
            warn({FaultKind::same_value, "two threads write the same value" + place, fault.where,
                  fault.other, fault.hint});
            continue;
        }
        report(one.fault);
        if (!takes_place_) {
            one.undo();
        }
    }
}

void Block::end_phase(const void* barrier, std::vector<WaitingThread>& waiting) {
    count_one(meetings_);
    observers_.tell(&Observer::end_phase, barrier);
    for (const WaitingThread& one : std::exchange(waiting, {})) {
        observers_.tell(&Observer::acquire, one.thread, barrier);
        release(one.thread);
    }
}

void Block::refuse(FaultKind kind, const std::string& summary, const char* operation,
                   SourceLocation location, const char* hint) {
    stop({kind, summary, here(std::string("calls ") + operation, location), hint});
}

/// Calls `use(operation, location, state, warp, lanes)` with those who wait for others.
void Block::for_each_waiting(const UseWaiting& use) const {
    for (unsigned number = 0; number < warps_.size(); ++number) {
        use(barrier_.operation, barrier_.location, "", number, barrier_.lanes[number]);
        for (const PendingCollective& meeting : warps_[number].pending) {
            std::ostringstream mask;
            mask << " with mask 0x" << std::hex << meeting.mask;
            use(meeting.operation, meeting.location, mask.str(), number, meeting.arrived);
        }
        const PendingBarrier& barrier = warpgroups_[number / 4].barrier;
        use(barrier.operation, barrier.location,
            " (" + so_many(barrier.arrived, 128) + " have come)", number, barrier.lanes[number]);
    }
    std::vector<Waiter> waiters;
    for (const auto& state : used(states_)) {
        state->add_waiters(waiters);
    }
    for (const auto& [thread, operation, location, state] : waiters) {
        use(operation, location, " (" + state + ")", thread / 32, 1u << thread % 32);
    }
}

/// Nobody can run, and not all have finished: tells who waits where.
Fault Block::stuck() const {
    struct Waiting {
        std::string action;
        LocationId origin;
        unsigned first;
        unsigned count = 0;
    };
    std::map<std::string, Waiting> places;
    const auto add_at = [&](const std::string& action, LocationId origin, const std::string& state,
                            unsigned warp, uint32_t lanes) {
        const SourceLine line = resolve({origin}).front();
        const std::string place =
            action + " at " + line.file + ":" + std::to_string(line.line) + state;
        places.try_emplace(place, Waiting{action, origin, warp * 32 + lowest(lanes)});
        places.at(place).count += static_cast<unsigned>(std::popcount(lanes));
    };
    const auto add = [&](const std::string& operation, SourceLocation location,
                         const std::string& state, unsigned warp, uint32_t lanes) {
        if (lanes != 0) {
            add_at("in " + operation, LocationId::of(location), state, warp, lanes);
        }
    };
    for_each_waiting(add);
    for (unsigned number = 0; number < warps_.size(); ++number) {
        for (uint32_t lanes = warps_[number].spinning; lanes != 0; lanes &= lanes - 1) {
            const Look& look = threads_[number * 32 + lowest(lanes)].look;
            add_at("for a value to change", look.origin, "", number, lanes & (~lanes + 1));
        }
    }
    std::string text = spinning_warps_ == 0
                           ? "deadlock: no thread of the block can run"
                           : "deadlock: threads look at values again and again that nobody changes";
    const Waiting* first = nullptr;
    for (const auto& [place, waiting] : places) {
        text += "\n  " + so_many(waiting.count, thread_count_) + " threads wait " + place +
                ", the first is " + to_string(dim3(threads_[waiting.first].index));
        first = first == nullptr || waiting.first < first->first ? &waiting : first;
    }
    if (finished_ > 0) {
        const auto gone = std::ranges::find(threads_, true, &Thread::finished);
        text += "\n  " + plural(finished_, "thread") + " left the kernel, the first is " +
                to_string(dim3(gone->index));
    }
    return {FaultKind::deadlock, text,
            place(first->first, "waits " + first->action, first->origin)};
}

std::vector<Standing> Block::standing(LocationId running) const {
    std::vector<Standing> all;
    std::array<uint32_t, 32> known{}; // lanes
    const auto add = [&](unsigned warp, uint32_t lanes, const std::string& what,
                         std::optional<LocationId> place) {
        if (lanes != 0) {
            known[warp] |= lanes;
            all.push_back({warp, lanes, what, place});
        }
    };
    for_each_waiting([&](const char* operation, SourceLocation location, const std::string&,
                         unsigned warp, uint32_t lanes) {
        add(warp, lanes, std::string("at ") + operation, LocationId::of(location));
    });
    const unsigned number = current_ == nullptr ? 0 : current_->number;
    const bool spins = (warps_[number / 32].spinning >> number % 32 & 1) != 0;
    if (current_ != nullptr && !current_->finished && !spins) {
        add(number / 32, 1u << number % 32 & ~known[number / 32], "running", running);
    }
    for (unsigned warp = 0; warp * 32 < thread_count_; ++warp) {
        if (const uint32_t spinning = warps_[warp].spinning; spinning != 0) {
            add(warp, spinning, "waiting for a value to change",
                threads_[warp * 32 + lowest(spinning)].look.origin);
        }
        add(warp, warps_[warp].ready & ~known[warp], "may go on when its turn comes", std::nullopt);
        const unsigned threads = std::min(thread_count_ - warp * 32, 32u);
        const uint32_t lanes = full_mask >> (32 - threads);
        add(warp, lanes & ~warps_[warp].alive & ~known[warp], "has left the kernel", std::nullopt);
    }
    return all;
}

void warn(Fault warning) { current_block().warn(std::move(warning)); }

} // namespace flash::simt
