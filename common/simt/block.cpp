#include "common/simt/block.hpp"

#include <bit>
#include <map>
#include <sstream>
#include <utility>

namespace flash::simt {
namespace {

thread_local Block* running = nullptr;

/// The n-th set bit of `bits`, n from 0.
unsigned nth_bit(uint32_t bits, unsigned n) {
    for (; n > 0; --n) {
        bits &= bits - 1;
    }
    return static_cast<unsigned>(std::countr_zero(bits));
}

unsigned lowest(uint32_t bits) { return static_cast<unsigned>(std::countr_zero(bits)); }
unsigned highest(uint32_t bits) { return 31 - static_cast<unsigned>(std::countl_zero(bits)); }

} // namespace

Block& current_block() { return *running; }
bool is_running_block() { return running != nullptr; }

std::optional<Fault> Block::run(const Launch& launch, const Kernel& kernel, uint3 index, bool watched) {
    running = this;
    watching_ = watched ? &watcher_ : nullptr;
    launch_ = &launch;
    kernel_ = &kernel;
    index_ = index;
    prepare();
    if (watched) {
        watcher_.begin_block();
    }
    while (finished_ < thread_count_ && !fault_) {
        if (ready_warps_ == 0) {
            fault_ = stuck();
            break;
        }
        current_ = &next();
        current_->fiber.resume();
    }
    if (watched && !fault_) {
        fault_ = watcher_.end_block();
    }
    current_ = nullptr;
    running = nullptr;
    if (fault_) {
        for (Thread& thread : threads_) { // they stand anywhere in the kernel
            thread.fiber.abandon();
        }
        fault_->kernel = kernel.name;
    }
    return std::exchange(fault_, std::nullopt);
}

void Block::prepare() {
    thread_count_ = static_cast<unsigned>(volume(launch_->block));
    shared_.reset(*kernel_, launch_->smem_bytes);
    schedule_ = options().schedule;
    // Every block draws its own numbers, so that they do not depend on which OS thread runs it.
    random_ = schedule_.number ^ (index_.x + 0x9e3779b97f4a7c15u * (index_.y + 0x9e3779b97f4a7c15u * index_.z));
    finished_ = 0;
    barrier_ = {};
    while (threads_.size() < thread_count_) {
        stacks_.emplace_back();
        threads_.emplace_back();
    }
    ready_warps_ = 0;
    for (Warp& warp : warps_) {
        warp.ready = warp.alive = warp.at_barrier = 0;
        warp.pending.clear();
    }
    for (unsigned number = 0; number < thread_count_; ++number) {
        Thread& thread = threads_[number];
        thread.index = element(launch_->block, number);
        thread.number = number;
        thread.finished = false;
        thread.wait = {};
        thread.copies.clear();
        warps_[number / 32].alive |= 1u << number % 32;
        release(number / 32, 1u << number % 32);
        if (!thread.fiber.started()) {
            thread.fiber.start(stacks_[number], [this, &thread] {
                while (true) {
                    active_watcher = watching_;
                    launch_->call(launch_->context);
                    active_watcher = nullptr;
                    finish_current();
                    thread.fiber.suspend();
                }
            });
        }
    }
}

uint64_t Block::draw() { // SplitMix64
    uint64_t z = random_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

Thread& Block::next() {
    unsigned warp = 0;
    unsigned lane = 0;
    switch (schedule_.kind) {
    case Schedule::reverse:
        warp = highest(ready_warps_);
        lane = highest(warps_[warp].ready);
        break;
    case Schedule::shuffle: {
        const uint64_t random = draw();
        warp = nth_bit(ready_warps_,
                       static_cast<unsigned>(random >> 32) % static_cast<unsigned>(std::popcount(ready_warps_)));
        const uint32_t lanes = warps_[warp].ready;
        lane = nth_bit(lanes, static_cast<unsigned>(random) % static_cast<unsigned>(std::popcount(lanes)));
        break;
    }
    default: {
        const bool ahead = schedule_.kind == Schedule::one_warp_ahead && (ready_warps_ >> schedule_.number & 1) != 0;
        warp = ahead ? static_cast<unsigned>(schedule_.number) : lowest(ready_warps_);
        lane = lowest(warps_[warp].ready);
        break;
    }
    }
    warps_[warp].ready &= ~(1u << lane);
    if (warps_[warp].ready == 0) {
        ready_warps_ &= ~(1u << warp);
    }
    return threads_[warp * 32 + lane];
}

void Block::release(unsigned warp, uint32_t lanes) {
    warps_[warp].ready |= lanes;
    ready_warps_ |= 1u << warp;
}

void Block::wait_in(const Wait& wait) {
    Thread& thread = *current_;
    thread.wait = wait;
    thread.fiber.suspend();
    thread.wait = {};
}

int Block::barrier(const char* operation, Site site, bool predicate) {
    if (barrier_.arrived == 0) {
        barrier_.site = site;
        barrier_.first = current_->number;
        barrier_.holds = 0;
    } else if (!(barrier_.site == site)) {
        Fault fault(FaultKind::divergent_barrier, "threads of one block are at different barriers");
        fault.where = here(std::string("calls ") + operation, site);
        fault.has_other = true;
        fault.other = {dim3(index_), dim3(threads_[barrier_.first].index), "waits", Origin::of(barrier_.site)};
        stop(std::move(fault));
    }
    barrier_.holds += predicate ? 1 : 0;
    Warp& own = warps_[current_->number / 32];
    own.at_barrier |= 1u << current_->number % 32;
    if (watching_ != nullptr && own.at_barrier == own.alive) {
        watching_->warp_together(current_->number / 32);
    }
    if (++barrier_.arrived == thread_count_) {
        if (watching_ != nullptr) {
            watching_->barrier(site);
        }
        barrier_.arrived = 0;
        barrier_.result = barrier_.holds;
        for (unsigned warp = 0; warp * 32 < thread_count_; ++warp) {
            warps_[warp].at_barrier = 0;
            release(warp, warps_[warp].alive);
        }
    }
    wait_in({operation, site, 0}); // the last to come as well: whose turn it is, the schedule says
    return barrier_.result;
}

void Block::finish_current() {
    current_->finished = true;
    ++finished_;
    const unsigned number = current_->number / 32;
    Warp& warp = warps_[number];
    warp.alive &= ~(1u << current_->number % 32);
    for (size_t i = 0; i < warp.pending.size(); ++i) { // lanes that have left are not waited for
        const Rendezvous& meeting = warp.pending[i];
        if (meeting.arrived == (meeting.mask & warp.alive)) {
            complete(number, i);
            break;
        }
    }
    if (watching_ != nullptr && warp.alive == 0) {
        watching_->warp_together(number);
    }
}

void Block::stop(Fault fault) {
    fault_ = std::move(fault);
    while (true) {
        current_->fiber.suspend();
    }
}

Place Block::here(const std::string& action, Site site) const {
    return {dim3(index_), dim3(current_->index), action, Origin::of(site)};
}

bool Block::is_stack_of(const Thread& thread, const void* address) const {
    return stacks_[thread.number].contains(address);
}

bool Block::is_stack_guard(const Thread& thread, const void* address) const {
    return stacks_[thread.number].guards(address);
}

/// Nobody can run, and not all have finished: tells who waits where.
Fault Block::stuck() const {
    std::map<std::string, std::vector<unsigned>> waiting;
    const Thread* first = nullptr;
    for (unsigned number = 0; number < thread_count_; ++number) {
        const Thread& thread = threads_[number];
        if (!thread.finished) {
            std::ostringstream where;
            where << thread.wait.operation << " at " << thread.wait.site.file << ':' << thread.wait.site.line;
            if (thread.wait.mask != 0) {
                where << " with mask 0x" << std::hex << thread.wait.mask;
            }
            waiting[where.str()].push_back(number);
            first = first == nullptr ? &thread : first;
        }
    }
    const bool left = finished_ > 0 && barrier_.arrived > 0 && barrier_.arrived + finished_ == thread_count_;
    std::ostringstream text;
    text << (left ? "threads wait at a barrier that others of the block left the kernel without reaching"
                  : "deadlock: no thread of the block can run");
    for (const auto& [where, threads] : waiting) {
        text << "\n  " << threads.size() << " of " << thread_count_ << " threads wait in " << where << ", the first is "
             << to_string(dim3(threads_[threads.front()].index));
    }
    if (finished_ > 0) {
        unsigned gone = 0;
        while (!threads_[gone].finished) {
            ++gone;
        }
        text << "\n  " << plural(finished_, "thread") << " left the kernel, the first is "
             << to_string(dim3(threads_[gone].index));
    }
    Fault fault(left ? FaultKind::missing_barrier : FaultKind::deadlock, text.str());
    fault.where = {dim3(index_), dim3(first->index), std::string("waits in ") + first->wait.operation,
                   Origin::of(first->wait.site)};
    return fault;
}

} // namespace flash::simt
