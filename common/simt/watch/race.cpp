#include "common/simt/watch/race.hpp"

#include <sys/mman.h>

#include <bit>
#include <new>
#include <utility>

namespace flash::simt {

namespace {

/// Whether two accesses differ in their lanes alone.
bool alike(const Trace& a, const Trace& b) {
    return a.warp == b.warp && a.clock == b.clock && a.origin == b.origin && a.atomic == b.atomic;
}

} // namespace

Shadow::Shadow(const char* begin, size_t bytes) : begin_(begin), words_(bytes / 4 + 1) {
    void* const memory = mmap(nullptr, 4 * words_ * sizeof(Cell), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::bad_alloc();
    }
    cells_ = static_cast<Cell*>(memory);
}

Shadow::~Shadow() { munmap(cells_, 4 * words_ * sizeof(Cell)); }

void Order::begin_block(unsigned threads) {
    threads_ = threads;
    works_.clear();
    readers_.begin_block();
    barrier();
    clocks_.begin_block(threads);
    block_begin_ = epoch_;
}

void Order::barrier() {
    ++epoch_;
    clocks_.reset(threads_);
    pool_.resize(1);
    unused_ = 0;
}

bool Order::ordered(const Trace& before, const Trace& now, bool shared) const {
    if (before.engine != 0 && of_this_block(before)) [[unlikely]] {
        const Work& work = works_[before.lanes];
        const auto thread = static_cast<unsigned>(std::countr_zero(now.lanes)) + now.warp * 32;
        return clocks_.knows_end(thread, work.channel, work.number);
    }
    if (before.epoch != now.epoch) {
        return shared || of_this_block(before) || before.epoch < launch_begin_;
    }
    const auto own = static_cast<unsigned>(std::countr_zero(now.lanes)) + now.warp * 32;
    if (before.copy != 0) {
        const auto starter = static_cast<unsigned>(std::countr_zero(before.lanes)) + before.warp * 32;
        return clocks_.knows_copy(own, starter, before.clock);
    }
    const uint32_t others = before.warp == now.warp ? before.lanes & ~now.lanes : before.lanes;
    return others == 0 || clocks_.knows(own, before.warp, others, before.clock);
}

/// Whether a read or an atomic operation races with an access of `kind`: two reads do not, nor two atomic operations.
bool Order::races(const Trace& before, Kind kind, const Trace& now, bool shared) const {
    return kind != (before.atomic != 0 ? Kind::atomic : Kind::load) && !ordered(before, now, shared);
}

const Trace* Order::unordered(const History& history, Kind kind, const Trace& now, bool shared) const {
    if (races(history.last, kind, now, shared)) {
        return &history.last;
    }
    if (history.last.epoch == now.epoch) {
        for (uint32_t i = history.more; i != 0; i = pool_[i].next) {
            if (races(pool_[i].trace, kind, now, shared)) {
                return &pool_[i].trace;
            }
        }
    }
    return races(history.other_block, kind, now, shared) ? &history.other_block : nullptr;
}

bool Order::knows_write(const Clocks::Common& group, const Cell& cell) const {
    const Trace& write = cell.write;
    if (write.engine != 0) {
        const Work& work = works_[write.lanes];
        return work.channel < group.ends.size() && group.ends[work.channel] > work.number;
    }
    const auto writer = static_cast<unsigned>(std::countr_zero(write.lanes)) + write.warp * 32;
    return write.epoch != epoch_ || write.copy != 0 || group.clocks[writer] > write.clock;
}

bool Order::is_fenced(const Clocks::Common& group, const Cell& cell) const {
    const Trace& write = cell.write;
    const auto writer = static_cast<unsigned>(std::countr_zero(write.lanes)) + write.warp * 32;
    return write.engine != 0 || (!group.fenced.empty() && group.fenced[writer] > cell.stamp);
}

uint32_t ReaderSets::with(uint32_t set, uint32_t work, const std::vector<Work>& works) {
    for (const Step& step : last_) {
        if (step.result != 0 && step.set == set && step.work == work) {
            return step.result;
        }
    }
    std::vector<uint32_t> more;
    for (const uint32_t known : (*this)[set]) {
        if (works[known].channel != works[work].channel) {
            more.push_back(known);
        }
    }
    more.push_back(work);
    const auto result = first_ + static_cast<uint32_t>(sets_.size());
    sets_.push_back(std::move(more));
    last_[oldest_++ % last_.size()] = {set, work, result};
    return result;
}

Order::Race Order::race(const Cell& cell, Kind kind, const Trace& now, bool shared) {
    if (!ordered(cell.write, now, shared)) {
        return {&cell.write, Kind::store};
    }
    if (kind != Kind::load && cell.readers != 0) {
        for (const uint32_t work : readers_[cell.readers]) {
            reader_ = trace_of(work);
            if (!ordered(reader_, now, shared)) {
                return {&reader_, Kind::load};
            }
        }
    }
    if (kind == Kind::load && !cell.atomics) {
        return {};
    }
    const Trace* const other = unordered(cell.since, kind, now, shared);
    return {other, other != nullptr && other->atomic != 0 ? Kind::atomic : Kind::load};
}

void Order::remember(Cell& cell, Kind kind, const Trace& now) {
    if (kind == Kind::store) {
        // All that came before is ordered before this, or it would have been a race: who races with them later, races
        // with this as well.
        cell.write = now;
        cell.since = {};
        cell.atomics = false;
        cell.readers = 0;
        cell.stamp = clocks_.stamp(static_cast<unsigned>(std::countr_zero(now.lanes)) + now.warp * 32);
    } else {
        cell.atomics = cell.atomics || kind == Kind::atomic;
        add(cell.since, now);
    }
}

void Order::add(History& history, const Trace& now) {
    Trace& last = history.last;
    if (last.epoch != now.epoch) {
        if (!of_this_block(last)) {
            history.other_block = last;
        }
        last = now;
        history.more = 0;
    } else if (alike(last, now)) {
        last.lanes |= now.lanes;
        if (now.clock != 0 && history.more != 0) {
            add_other(history, now);
        }
    } else {
        add_other(history, now);
    }
}

/// Not like the last one: that goes to the list, and what the list has of this one comes forward.
void Order::add_other(History& history, const Trace& now) {
    if (!alike(history.last, now)) {
        uint32_t node = unused_;
        if (node != 0) {
            unused_ = pool_[node].next;
        } else {
            node = static_cast<uint32_t>(pool_.size());
            pool_.emplace_back();
        }
        pool_[node] = {history.last, history.more};
        history.more = node;
        history.last = now;
    }
    for (uint32_t* link = &history.more; *link != 0;) {
        Node& node = pool_[*link];
        if (alike(node.trace, now)) {
            history.last.lanes |= std::exchange(node.trace.lanes, 0);
        } else if (node.trace.warp == now.warp && node.trace.clock != now.clock && node.trace.atomic == now.atomic) {
            node.trace.lanes &= ~now.lanes; // the thread's later access stands for its earlier ones
        }
        if (node.trace.lanes == 0) {
            const uint32_t empty = *link;
            *link = std::exchange(node.next, unused_);
            unused_ = empty;
        } else {
            link = &node.next;
        }
    }
}

} // namespace flash::simt
