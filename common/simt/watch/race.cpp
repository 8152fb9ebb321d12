#include "common/simt/watch/race.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "common/attention.hpp"

namespace flash::simt {

namespace {

std::mutex shadows_mutex;
std::vector<Shadow*> shadows;

void join(Order::Blocks& all, const Order::Blocks& more) {
    all.resize(std::max(all.size(), more.size()));
    for (size_t i = 0; i < more.size(); ++i) {
        all[i] = all[i] || more[i];
    }
}

} // namespace

Shadow::Shadow(const char* begin, size_t bytes) : begin_(begin), words_(bytes / 4 + 1) {
    void* const memory = mmap(nullptr, 4 * words_ * sizeof(Cell), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw Error("not enough memory for what the detector remembers (a limit of ulimit?)");
    }
    cells_ = static_cast<Cell*>(memory);
    const std::lock_guard lock(shadows_mutex);
    shadows.push_back(this);
}

Shadow::~Shadow() {
    const std::lock_guard lock(shadows_mutex);
    std::erase(shadows, this);
    munmap(cells_, 4 * words_ * sizeof(Cell));
}

size_t Shadow::visit_all(const std::function<void(Cell&)>& use) {
    const std::lock_guard lock(shadows_mutex);
    size_t words = 0;
    for (const Shadow* const shadow : shadows) {
        for (size_t word = 0; word < shadow->words_; ++word) {
            const unsigned cells = shadow->cells_[word].apart != 0 ? 4 : 1;
            for (unsigned byte = 0; byte < cells; ++byte) {
                use(shadow->cells_[byte * shadow->words_ + word]);
            }
        }
        words += shadow->words_;
    }
    return words;
}

void Order::begin_block(unsigned threads) {
    threads_ = threads;
    works_.clear();
    readers_.take();
    clocks_.begin_block(threads); // before all that counts its threads
    barrier();
    block_begin_ = epoch_;
    begins_.push_back(epoch_);
    known_.clear();
    if (writes_.count() + pasts_.count() > enough_) {
        forget_old();
    }
    block_writes_ = epoch_writes_ = writes_.count();
}

/// Numbers anew what cells remember of this launch; what was before it is ordered before all that
/// comes.
void Order::forget_old() {
    const auto keep = [](auto& numbered, const auto& is_old) {
        return [&numbered, is_old, all = numbered.take(),
                numbers = std::vector<uint32_t>()](uint32_t number) mutable {
            numbers.resize(all.size());
            if (number != 0 && numbers[number] == 0 && !is_old(all[number])) {
                numbers[number] = numbered.number(all[number]);
            }
            return numbers[number];
        };
    };
    const auto old = [this](const Trace& trace) { return trace.epoch < launch_begin_; };
    auto write = keep(writes_, old);
    auto past =
        keep(pasts_, [&](const History& one) { return old(one.last) && old(one.other_block); });
    const size_t words = Shadow::visit_all([&](Cell& cell) {
        const uint32_t kept = write(cell.write & ~unsettled);
        cell.write = kept == 0 ? 0 : kept | (cell.write & unsettled);
        cell.since = past(cell.since) & ~unsettled;
    });
    const size_t kept = writes_.count() + pasts_.count();
    // so that this costs little beside the accesses
    enough_ = std::max(2 * kept, std::max(words, size_t{1} << 17));
}

Order::Blocks Order::handed_on(const Blocks& before) const {
    Blocks all = before;
    all.resize(begins_.size());
    all.back() = true;
    join(all, known_);
    return all;
}

void Order::learn(const Blocks& blocks) {
    join(known_, blocks);
    ++moment_;
}

size_t Order::block_of(const Trace& trace) const {
    return static_cast<size_t>(std::ranges::upper_bound(begins_, trace.epoch) - begins_.begin()) -
           1;
}

bool Order::known(const Trace& before) const {
    const size_t block = block_of(before);
    return block < known_.size() && known_[block];
}

const Trace* Order::unordered_addition(const Cell& cell) const {
    const History& past = pasts_[cell.since];
    const Trace& before = of_this_block(past.last) ? past.other_block : past.last;
    return before.atomic != 0 && before.epoch >= launch_begin_ && !known(before) ? &before
                                                                                 : nullptr;
}

void Order::barrier() {
    ++epoch_;
    ++moment_;
    epoch_writes_ = writes_.count();
    clocks_.reset(threads_);
    pool_.resize(1);
}

/// Whether a read or an atomic operation races with an access of `kind`: two reads do not, nor two
/// atomic operations.
bool Order::races(const Trace& before, AccessKind kind, const Trace& now, bool shared) const {
    return kind != (before.atomic != 0 ? AccessKind::atomic : AccessKind::load) &&
           !ordered(before, now, shared);
}

const Trace* Order::unordered(const History& history, AccessKind kind, const Trace& now,
                              bool shared) const {
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

bool Order::knows_write(const Clocks::Knowledge& group, const Cell& cell) const {
    const auto [place, number] = moment_of(writer(cell));
    return is_above(group.known, place, number);
}

bool Order::is_fenced(const Clocks::Knowledge& group, const Cell& cell) const {
    const auto [place, number] = moment_of(writer(cell));
    return is_work(writer(cell), Work::loads) || is_above(group.fenced, place, number);
}

/// That list and `count` works more; a later work on a channel stands for earlier ones.
uint32_t Order::with_readers(uint32_t list, uint32_t work, uint32_t count) {
    const auto all = [&](uint32_t first, uint32_t number) {
        return std::span(works_).subspan(first, number);
    };
    for (; list != 0; list = readers_[list].next) {
        const ReaderList& known = readers_[list];
        const bool over =
            std::ranges::all_of(all(known.first, known.count), [&](const Work& before) {
                return std::ranges::count(all(work, count), before.channel, &Work::channel) != 0;
            });
        if (!over) {
            others_.push_back(known);
        }
    }
    uint32_t result = readers_.number({work, count, 0});
    for (; !others_.empty(); others_.pop_back()) {
        result = readers_.number({others_.back().first, others_.back().count, result});
    }
    return result;
}

Order::Race Order::race_with_readers(const Cell& cell, AccessKind kind, const Trace& now,
                                     bool shared) {
    const History& past = pasts_[cell.since];
    for (uint32_t i = kind == AccessKind::load ? 0 : readers(past); i != 0; i = readers_[i].next) {
        for (uint32_t work = 0; work < readers_[i].count; ++work) {
            reader_ = trace_of(readers_[i].first + work);
            if (!ordered(reader_, now, shared)) {
                return {&reader_, AccessKind::load};
            }
        }
    }
    const Trace* const other = unordered(past, kind, now, shared);
    return {other, other != nullptr && other->atomic != 0 ? AccessKind::atomic : AccessKind::load};
}

/// Not like the last one: that goes to the list, and what the list has of this one comes forward.
void Order::add_other(History& history, const Trace& now) {
    std::vector<Trace>& others = rewritten_;
    others.clear();
    if (!alike(history.last, now)) {
        others.push_back(std::exchange(history.last, now));
    }
    const size_t added = others.size();
    for (uint32_t i = history.more; i != 0; i = pool_[i].next) {
        others.push_back(pool_[i].trace);
    }
    bool changed = false;
    for (Trace& other : others) {
        if (alike(other, now)) {
            history.last.lanes |= std::exchange(other.lanes, 0);
            changed = true;
        } else if (other.warp == now.warp && other.clock != now.clock &&
                   other.atomic == now.atomic) {
            changed = changed || (other.lanes & now.lanes) != 0;
            other.lanes &= ~now.lanes; // the thread's later access stands for its earlier ones
        }
    }
    if (changed) {
        history.more = 0;
    } else {
        others.resize(added); // the others stand in the list as it is
    }
    for (; !others.empty(); others.pop_back()) {
        if (others.back().lanes != 0) {
            pool_.push_back({others.back(), history.more});
            history.more = static_cast<uint32_t>(pool_.size()) - 1;
        }
    }
}

} // namespace flash::simt
