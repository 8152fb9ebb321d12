#include "common/simt/observers/race.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/stream_order.hpp"

namespace flash::simt {

namespace {

void join(RaceDetector::Blocks& all, const RaceDetector::Blocks& more) {
    all.resize(std::max(all.size(), more.size()));
    for (size_t i = 0; i < more.size(); ++i) {
        all[i] = all[i] || more[i];
    }
}

} // namespace

/// What is remembered of each byte of a buffer. A variable may begin anywhere.
Shadow* GlobalPast::shadow_of(const Buffer& buffer) {
    const size_t before = reinterpret_cast<size_t>(buffer.begin) % 16;
    if (!buffer.notes) {
        buffer.notes =
            std::make_unique<Shadow>(buffer.begin - before, buffer.bytes() + before, &shadows);
    }
    auto* const shadow = static_cast<Shadow*>(buffer.notes.get());
    if (!std::exchange(shadow->touched, true)) {
        shadows.touched.push_back(shadow);
    }
    return shadow;
}

void GlobalPast::begin_launch() {
    first_block = blocks + 1;
    begun.clear();
    signals.clear();
    any_signals = false;
    old_writes = writes.end();
    for (Shadow* const shadow : std::exchange(shadows.touched, {})) {
        shadow->touched = false;
    }
}

void GlobalPast::tell_touches() {
    const auto touch = [this](const Cell& cell) -> std::optional<Touch> {
        if (cell.write != 0 && !is_old(writes.all()[cell.write / 32])) {
            return Touch::writes;
        }
        const Reads& since = histories[cell.since / 32];
        const bool any = cell.since != 0 && since.last.block != 0 && !is_old(since.last);
        return !any ? std::nullopt
                    : std::optional(since.atomics != 0 ? Touch::updates : Touch::reads);
    };
    for (const Shadow* const shadow : shadows.touched) {
        if (!touches_matter(shadow->begin())) {
            continue;
        }
        std::map<Touch, std::vector<std::span<const char>>> places;
        Cell last;
        std::optional<Touch> how; // of it
        shadow->visit_words([&](const char* place, std::span<const Cell> cells) {
            const size_t bytes = 4 / cells.size();
            for (const Cell& cell : cells) {
                if (cell.write / 32 != last.write / 32 || cell.since / 32 != last.since / 32) {
                    how = touch(last = cell);
                }
                if (how) {
                    auto& alike = places[*how];
                    if (!alike.empty() && std::to_address(alike.back().end()) == place) {
                        alike.back() = {alike.back().data(), alike.back().size() + bytes};
                    } else {
                        alike.emplace_back(place, bytes);
                    }
                }
                place += bytes;
            }
        });
        for (const auto& [how_of_all, all] : places) {
            touch_by_work(all, how_of_all);
        }
    }
}

RaceDetector::RaceDetector(GlobalPast& past, const Block& runner)
    : past_(past), runner_(runner),
      dynamic_shadow_(runner.shared().region_begin(), SharedMemory::region_bytes),
      static_shadow_(runner.shared().segment().begin, runner.shared().segment().bytes) {
    past.detectors.push_back(this);
}

RaceDetector::~RaceDetector() { std::erase(past_.detectors, this); }

const Block* RaceDetector::running_block(const Access& access) const {
    for (const RaceDetector* const one : past_.detectors) {
        if (one->block_ == access.block) {
            return &one->runner_;
        }
    }
    return nullptr;
}

void RaceDetector::begin_block(unsigned threads, uint3 index) {
    block_ = ++past_.blocks;
    past_.begun.push_back(index);
    threads_ = threads;
    works_.clear();
    readers_.take();
    begin_shared_memory();
    clocks_.begin_block(threads); // before all that counts its threads
    barrier();
    block_begin_ = epoch_;
    known_.clear();
    own_signals_.clear();
    acquired_.assign(threads, {});
    if (past_.writes.count() + past_.histories.count() > past_.enough) {
        forget_old();
    }
    ranges_[false].block_writes = ranges_[false].epoch_writes = past_.writes.end();
    ranges_[false].old_writes = past_.old_writes;
}

void RaceDetector::go_on() {
    change();
    ranges_[false].block_writes = ranges_[false].epoch_writes = past_.writes.end();
    ranges_[false].old_writes = past_.old_writes;
}

// --- what orders two accesses --------------------------------------------------------------------

void RaceDetector::barrier() {
    epoch_ = ++past_.epochs;
    change();
    lanes_alike_ = true;
    ranges_[false].epoch_writes = past_.writes.end();
    ranges_[true].epoch_writes = shared_writes_.end();
    clocks_.reset(threads_);
    epoch_clock_ = clocks_.clock(0);
    begin_reads();
    pool_.resize(1);
}

void RaceDetector::meet(unsigned warp, uint32_t lanes) {
    const uint32_t before = ranges_[true].moment;
    const uint32_t whole_warp = ~0u >> (32 - std::min(32u, threads_ - warp * 32));
    const bool alike = lanes_alike_ && lanes == whole_warp;
    change();
    lanes_alike_ = alike;
    clocks_.meet(warp, lanes);
    const auto [place, is_new] = meetings_.try_emplace({before, warp, lanes}, moments_);
    ranges_[true].moment = place->second;
}

void RaceDetector::strong_read(unsigned thread, const void* address, Scope scope, bool shared) {
    if (SignalList found = signals_at(shared).read(address, scope, block_)) {
        clocks().of(thread).pending.add(address, found);
    }
}

void RaceDetector::strong_write(unsigned thread, const void* address, Scope scope, bool replaces,
                                bool shared) {
    const HandedOn& handed_on = std::as_const(clocks_).of(thread).handed_on;
    if (!past_.any_signals && !handed_on.empty()) {
        past_.any_signals = true;
        change();
    }
    const auto& acquired = acquired_[thread];
    const auto known = std::ranges::find(acquired, address, &Acquired::address);
    signals_at(shared).write(address, scope, block_, replaces, handed_on,
                             known == acquired.end() ? nullptr : known->all);
}

void RaceDetector::fence(unsigned thread, Scope scope) {
    Clocks::Knowledge& own = clocks().of(thread);
    const auto learn = [&](const BlocksKnown& more) {
        own.blocks.learn(more);
        if (const std::vector<uint32_t>* const progress = more.of(block_)) {
            for (size_t place = 0; place < progress->size(); ++place) {
                raise(own.known, place, (*progress)[place]);
            }
        }
    };
    for (const auto& [address, signals] : own.pending.list()) {
        learn(signals->to_block(block_));
        if (scope != Scope::block) {
            learn(signals->to_all());
        }
        auto& acquired = acquired_[thread];
        std::erase_if(acquired, [&](const Acquired& one) { return one.address == address; });
        acquired.push_back({address, scope == Scope::block ? nullptr : signals});
    }
    if (scope != Scope::block) {
        own.pending.clear();
    }
    own.handed_on.in_block = own.blocks;
    own.handed_on.in_block.learn(block_, clocks_.step(thread));
    if (scope != Scope::block) {
        own.handed_on.in_device = own.handed_on.in_block;
    }
}

bool RaceDetector::would_learn(unsigned thread, const void* address) const {
    const Clocks::Knowledge& own = clocks_.of(thread);
    const auto is_news = [&](const BlocksKnown& signal) {
        BlocksKnown sum = own.blocks;
        sum.learn(signal);
        const std::vector<uint32_t>* const progress = signal.of(block_);
        return sum != own.blocks ||
               (progress != nullptr && !std::equal(progress->begin(), progress->end(),
                                                   own.known.begin(), std::less_equal<>()));
    };
    return std::ranges::any_of(own.pending.list(), [&](const auto& one) {
        return one.address == address &&
               (is_news(one.signals->to_all()) || is_news(one.signals->to_block(block_)));
    });
}

bool RaceDetector::ordered_by_signals(const Access& before, const Access& now) const {
    return clocks_.of(thread_of(now))
        .blocks.covers(before.block, before.warp, before.lanes, before.clock);
}

/// Of two accesses that nothing orders.
RaceDetector::Race::Doubt RaceDetector::doubt_of(const Access& before, const Access& now) const {
    if (may_meet(before, now)) {
        return Race::strong;
    }
    const auto covers = [&](const BlocksKnown& blocks) {
        return blocks.covers(before.block, before.warp, before.lanes, before.clock);
    };
    for (const auto& [address, signals] : clocks_.of(thread_of(now)).pending.list()) {
        if (before.engine == 0 &&
            (covers(signals->to_all()) || covers(signals->to_block(block_)))) {
            return Race::one_fence;
        }
    }
    return Race::no;
}

RaceDetector::Blocks RaceDetector::handed_on(const Blocks& before) const {
    Blocks all = before;
    all.resize(std::max<size_t>(before.size(), block_ - past_.first_block + 1));
    all[block_ - past_.first_block] = true;
    join(all, known_);
    return all;
}

void RaceDetector::learn(const Blocks& blocks) {
    join(known_, blocks);
    change();
}

bool RaceDetector::known(const Access& before) const {
    const size_t block = before.block - past_.first_block;
    return block < known_.size() && known_[block];
}

/// Whether an earlier read or atomic operation is a worse race than what was found: two reads are
/// none, nor two atomic operations that may meet.
bool RaceDetector::worse(Race& found, const Access& before, AccessKind before_kind, AccessKind kind,
                         const Access& now, bool shared) const {
    if ((kind == AccessKind::load && before_kind == AccessKind::load) ||
        (kind == AccessKind::atomic && before_kind == AccessKind::atomic &&
         may_meet(before, now)) ||
        ordered(before, now, shared)) {
        return false;
    }
    const Race::Doubt doubt = doubt_of(before, now);
    if (found.other && doubt != Race::no) {
        return false;
    }
    found = {before, before_kind, doubt};
    return doubt == Race::no;
}

bool RaceDetector::knows_write(const Clocks::Knowledge& group, const Cell& cell) const {
    const auto [place, number] = moment_of(writer(cell, true));
    return is_above(group.known, place, number);
}

bool RaceDetector::is_fenced(const Clocks::Knowledge& group, const Cell& cell) const {
    const auto [place, number] = moment_of(writer(cell, true));
    return is_work(writer(cell, true), EngineWork::loads) || is_above(group.fenced, place, number);
}

RaceDetector::Race RaceDetector::race_with_readers(const Cell& cell, AccessKind kind,
                                                   const Access& now, bool shared, Race found) {
    const auto [past, frame] = history(cell, shared);
    for (uint32_t i = kind == AccessKind::load ? 0 : past.readers; i != 0; i = readers_[i].next) {
        for (uint32_t work = 0; work < readers_[i].count; ++work) {
            const Access reader = access_of(readers_[i].first + work);
            if (!ordered(reader, now, shared)) {
                return {reader, AccessKind::load};
            }
        }
    }
    const bool is_relative = this->is_relative(past, shared);
    const auto told = [&, frame = frame](const Access& access) {
        return out_of_frame(is_relative ? absolute(access) : access, frame);
    };
    // Who has updated it last, and found what others have handed on there, comes after those.
    const unsigned thread = thread_of(now);
    const Access last = told(past.last);
    const bool has_found = !acquired_[thread].empty() || !clocks_.of(thread).pending.empty();
    const bool is_last = has_found && last.atomic != 0 && last.block == now.block &&
                         last.warp == now.warp && (last.lanes & now.lanes) != 0;
    const auto is_worse = [&](const Access& before) {
        const AccessKind before_kind = before.atomic != 0 ? AccessKind::atomic : AccessKind::load;
        return !(is_last && before.atomic != 0 && may_meet(before, last)) &&
               worse(found, before, before_kind, kind, now, shared);
    };
    if (is_worse(last)) {
        return found;
    }
    if (last.epoch == now.epoch) {
        for (uint32_t i = past.more; i != 0; i = in_list(i, is_relative).next) {
            if (is_worse(told(in_list(i, is_relative).access))) {
                return found;
            }
        }
    }
    for (const Access& other : past.others) {
        if (is_worse(told(other))) {
            return found;
        }
    }
    return found;
}

// --- what is remembered --------------------------------------------------------------------------

/// The last one is not of this epoch. One of another block is enough to be remembered, where
/// nothing orders them; where something may, those are left out for which this one stands. An
/// access of this block comes here where this one does not stand for it.
void RaceDetector::add_block(Reads& history, const Access& framed_now, uint32_t frame) const {
    auto& [first, second] = history.others;
    const Access now = out_of_frame(framed_now, frame);
    const auto is_before = [&](const Access& one) {
        return one.block == 0 ||
               (stands_for(now, one) && ordered(out_of_frame(one, frame), now, false));
    };
    if (!past_.any_signals) {
        (of_this_block(history.last) ? second : first) = history.last;
        return;
    }
    if (!is_before(history.last)) {
        second = std::exchange(first, history.last);
    }
    if (is_before(second)) {
        second = {};
    }
    if (is_before(first)) {
        first = std::exchange(second, {});
    }
}

/// Not like the last one: that goes to the list, and what the list has of this one comes forward.
void RaceDetector::add_other(Reads& history, const Access& now, bool shared) {
    const bool is_relative = this->is_relative(history, shared);
    std::vector<Access>& others = rewritten_;
    others.clear();
    if (!alike(history.last, now)) {
        if (!shared && !stands_for(now, history.last)) {
            history.others[1] = history.last; // other blocks do not see the list
        }
        others.push_back(std::exchange(history.last, now));
    }
    const size_t added = others.size();
    for (uint32_t i = history.more; i != 0; i = in_list(i, is_relative).next) {
        others.push_back(in_list(i, is_relative).access);
    }
    bool changed = false;
    for (Access& other : others) {
        if (alike(other, now)) {
            history.last.lanes |= std::exchange(other.lanes, 0);
            changed = true;
        } else if (other.warp == now.warp && other.clock != now.clock &&
                   other.atomic == now.atomic && stands_for(now, other)) {
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
            history.more = add_to_list({others.back(), history.more}, is_relative);
        }
    }
}

uint32_t RaceDetector::add_to_list(const ListedAccess& first, bool relative) {
    if (relative) {
        return reads_.lists.number(first);
    }
    pool_.push_back(first);
    return static_cast<uint32_t>(pool_.size()) - 1;
}

void RaceDetector::read_by(uint32_t work, uint32_t count, Cell& cell) {
    const Framed known = history(cell, true);
    Reads past = known.past;
    if (past.readers == 0) {
        past.last = out_of_frame(absolute(past.last), known.frame);
        std::vector<Access> list;
        for (uint32_t i = past.more; i != 0; i = reads_.lists[i].next) {
            list.push_back(out_of_frame(absolute(reads_.lists[i].access), known.frame));
        }
        past.more = 0;
        for (; !list.empty(); list.pop_back()) {
            past.more = add_to_list({list.back(), past.more}, false);
        }
    }
    past.readers = with_readers(past.readers, work, count);
    past.readers_from = block_begin_;
    set_since(cell, past, true, 0);
}

/// That list and `count` works more; a later work on a channel stands for earlier ones.
uint32_t RaceDetector::with_readers(uint32_t list, uint32_t work, uint32_t count) {
    const auto all = [&](uint32_t first, uint32_t number) {
        return std::span(works_).subspan(first, number);
    };
    for (; list != 0; list = readers_[list].next) {
        const EngineReaders& known = readers_[list];
        const bool over =
            std::ranges::all_of(all(known.first, known.count), [&](const EngineWork& before) {
                return std::ranges::count(all(work, count), before.channel, &EngineWork::channel) !=
                       0;
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

std::vector<LocationId> RaceDetector::own_loads(const Cell& cell, const Access& now,
                                                bool shared) const {
    const auto [past, frame] = history(cell, shared);
    const bool is_relative = this->is_relative(past, shared);
    std::vector<LocationId> places;
    const auto told = [&, frame = frame](const Access& access) {
        return out_of_frame(is_relative ? absolute(access) : access, frame);
    };
    const auto add = [&](const Access& one) {
        if (one.block == now.block && one.warp == now.warp && (one.lanes & now.lanes) != 0 &&
            one.epoch == now.epoch && one.engine == 0 && one.atomic == 0 &&
            Scope{static_cast<uint8_t>(one.scope)} == Scope::weak) {
            places.push_back(LocationId::from(one.origin));
        }
    };
    const Access last = told(past.last);
    add(last);
    if (last.epoch == now.epoch) {
        for (uint32_t i = past.more; i != 0; i = in_list(i, is_relative).next) {
            add(told(in_list(i, is_relative).access));
        }
    }
    return places;
}

std::optional<Access> RaceDetector::unordered_addition(const Cell& cell) const {
    const auto [past, frame] = history(cell, false);
    const Access& before = of_this_block(past.last) ? past.others.front() : past.last;
    return before.atomic != 0 && !past_.is_old(before) && !known(before)
               ? std::optional(out_of_frame(before, frame))
               : std::nullopt;
}

// --- what makes it fast --------------------------------------------------------------------------

/// What blocks before did to it is of no concern; their numbers go when they are many.
void RaceDetector::begin_shared_memory() {
    constexpr uint32_t many = 1 << 15;
    if (shared_writes_.count() + lasting_.count() > many) {
        shared_writes_ = {};
        lasting_ = {};
        epoch_moment_ = 0; // what was learnt names old numbers
        dynamic_shadow_.clear();
        static_shadow_.clear();
    }
    ranges_[true].block_writes = ranges_[true].old_writes = shared_writes_.end();
}

/// What threads have read before a barrier is ordered before what they do after it.
void RaceDetector::begin_reads() {
    constexpr uint32_t many = 1 << 16;
    reads_.begin += reads_.histories.count() * 32;
    if (reads_.histories.count() + reads_.lists.count() + meetings_.size() > many ||
        epoch_moment_ == 0) {
        reads_.histories = {};
        reads_.lists = {};
        meetings_.clear();
        epoch_moment_ = next_moment();
    }
    if (reads_.begin >= lasting / 2) {
        const auto forget = [](Cell& cell) {
            cell.since = (cell.since & lasting) == 0 ? 0 : uint32_t{cell.since};
        };
        dynamic_shadow_.visit(forget);
        static_shadow_.visit(forget);
        reads_.begin = 0;
    }
    ranges_[true].reads = reads_.begin;
    ranges_[true].moment = epoch_moment_;
}

/// NumberRanges anew what cells remember of this launch; what was before it is ordered before all
/// that comes.
void RaceDetector::forget_old() {
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
    const auto old = [this](const Access& access) { return past_.is_old(access); };
    auto write = keep(past_.writes.all(), old);
    auto past = keep(past_.histories, [&](const Reads& one) {
        return old(one.last) && std::ranges::all_of(one.others, old);
    });
    const size_t words = past_.shadows.visit([&](Cell& cell) {
        const uint32_t kept = write(cell.write / 32);
        cell.write = kept == 0 ? 0 : kept * 32 + cell.write % 32;
        const uint32_t kept_past = past(cell.since / 32);
        cell.since = kept_past == 0 ? 0 : (kept_past * 32 + cell.since % 32) & ~unsettled;
    });
    const size_t kept = past_.writes.count() + past_.histories.count();
    // so that this costs little beside the accesses
    past_.enough = std::clamp(std::max(2 * kept, words), size_t{1} << 17, size_t{1} << 25);
    past_.old_writes = 32;
    for (RaceDetector* const one : past_.detectors) {
        one->go_on(); // by the new numbers
    }
}

} // namespace flash::simt
