#include "common/simt/watch/race.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace flash::simt {

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
    clocks_.begin_block(threads); // before all that counts its threads
    barrier();
    block_begin_ = epoch_;
    begins_.push_back(epoch_);
    known_.clear();
}

Order::Blocks Order::handed_on(const Blocks& before) const {
    Blocks all = known_;
    all.resize(begins_.size());
    all.back() = true;
    for (size_t i = 0; i < before.size(); ++i) {
        all[i] = all[i] || before[i];
    }
    return all;
}

void Order::learn(const Blocks& blocks) {
    known_.resize(std::max(known_.size(), blocks.size()));
    for (size_t i = 0; i < blocks.size(); ++i) {
        known_[i] = known_[i] || blocks[i];
    }
}

bool Order::known(const Trace& before) const {
    const auto block = static_cast<size_t>(std::ranges::upper_bound(begins_, before.epoch) - begins_.begin()) - 1;
    return block < known_.size() && known_[block];
}

const Trace* Order::unordered_addition(const Cell& cell) const {
    const Trace& before = of_this_block(cell.since.last) ? cell.since.other_block : cell.since.last;
    return before.atomic != 0 && before.epoch >= launch_begin_ && !known(before) ? &before : nullptr;
}

void Order::barrier() {
    ++epoch_;
    clocks_.reset(threads_);
    pool_.resize(1);
    unused_ = 0;
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

uint32_t ReaderSets::with(uint32_t set, uint32_t work, uint32_t count, const std::vector<Work>& works) {
    for (const Step& step : last_) {
        if (step.result != 0 && step.set == set && step.work == work && step.count == count) {
            return step.result;
        }
    }
    std::vector<uint32_t> more;
    const std::span<const Work> added(works.data() + work, count);
    for (const uint32_t known : (*this)[set]) {
        if (std::ranges::find(added, works[known].channel, &Work::channel) == added.end()) {
            more.push_back(known);
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        more.push_back(work + i);
    }
    const auto result = first_ + static_cast<uint32_t>(sets_.size());
    sets_.push_back(std::move(more));
    last_[oldest_++ % last_.size()] = {set, work, count, result};
    return result;
}

Order::Race Order::race_with_readers(const Cell& cell, Kind kind, const Trace& now, bool shared) {
    if (kind != Kind::load && cell.readers != 0) {
        for (const uint32_t work : readers_[cell.readers]) {
            reader_ = trace_of(work);
            if (!ordered(reader_, now, shared)) {
                return {&reader_, Kind::load};
            }
        }
    }
    const Trace* const other = unordered(cell.since, kind, now, shared);
    return {other, other != nullptr && other->atomic != 0 ? Kind::atomic : Kind::load};
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
