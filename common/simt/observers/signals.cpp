#include "common/simt/observers/signals.hpp"

#include <algorithm>
#include <bit>

namespace flash::simt {
namespace {

Progress later(const Progress& a, const Progress& b) {
    const auto covers = [](const std::vector<uint32_t>& more, const std::vector<uint32_t>& less) {
        return more.size() >= less.size() &&
               std::equal(less.begin(), less.end(), more.begin(), std::less_equal<>());
    };
    if (a == b || covers(*a, *b)) {
        return a;
    }
    if (covers(*b, *a)) {
        return b;
    }
    std::vector<uint32_t> both = *a;
    both.resize(std::max(a->size(), b->size()));
    for (size_t i = 0; i < b->size(); ++i) {
        both[i] = std::max(both[i], (*b)[i]);
    }
    return std::make_shared<const std::vector<uint32_t>>(std::move(both));
}

bool is_before(const std::pair<uint32_t, Progress>& entry, uint32_t block) {
    return entry.first < block;
}

} // namespace

const std::vector<uint32_t>* BlocksKnown::of(uint32_t block) const {
    if (entries_ == nullptr) {
        return nullptr;
    }
    const auto found = std::lower_bound(entries_->begin(), entries_->end(), block, is_before);
    return found != entries_->end() && found->first == block ? found->second.get() : nullptr;
}

bool BlocksKnown::covers(uint32_t block, unsigned warp, uint32_t lanes, uint32_t clock) const {
    const std::vector<uint32_t>* const progress = of(block);
    if (progress == nullptr) {
        return false;
    }
    for (; lanes != 0; lanes &= lanes - 1) {
        const size_t thread = warp * 32 + static_cast<unsigned>(std::countr_zero(lanes));
        if (thread >= progress->size() || (*progress)[thread] <= clock) {
            return false;
        }
    }
    return true;
}

void BlocksKnown::learn(const BlocksKnown& more) {
    if (more.entries_ == nullptr || more.entries_ == entries_) {
        return;
    }
    if (entries_ == nullptr) {
        entries_ = more.entries_;
        return;
    }
    Entries all;
    all.reserve(entries_->size() + more.entries_->size());
    auto own = entries_->begin();
    bool changed = false;
    for (const auto& entry : *more.entries_) {
        for (; own != entries_->end() && own->first < entry.first; ++own) {
            all.push_back(*own);
        }
        if (own != entries_->end() && own->first == entry.first) {
            all.emplace_back(entry.first, later(own->second, entry.second));
            changed |= all.back().second != own->second;
            ++own;
        } else {
            all.push_back(entry);
            changed = true;
        }
    }
    if (changed) {
        all.insert(all.end(), own, entries_->end());
        entries_ = std::make_shared<const Entries>(std::move(all));
    }
}

void BlocksKnown::learn(uint32_t block, const Progress& progress) {
    BlocksKnown one;
    one.entries_ = std::make_shared<const Entries>(Entries{{block, progress}});
    learn(one);
}

const BlocksKnown& Signal::to_all() const {
    std::vector<const Signal*> later_ones; // whose sum is not known yet
    for (const Signal* one = this; one != nullptr && !one->joined_; one = one->before.get()) {
        later_ones.push_back(one);
    }
    for (; !later_ones.empty(); later_ones.pop_back()) {
        const Signal& one = *later_ones.back();
        one.to_all_ = one.handed_on.in_device;
        if (one.before != nullptr) {
            one.to_all_.learn(one.before->to_all_);
        }
        one.joined_ = true;
    }
    return to_all_;
}

BlocksKnown Signal::to_block(uint32_t receiver) const {
    BlocksKnown sum;
    for (const Signal* one = this; one != nullptr; one = one->before.get()) {
        if (one->block == receiver) {
            sum.learn(one->handed_on.in_block);
        }
    }
    return sum;
}

Signal::~Signal() {
    while (before != nullptr && before.use_count() == 1) {
        // nobody else has it: what comes before it, is taken out of it first
        SignalList next = std::move(const_cast<Signal&>(*before).before);
        before = std::move(next);
    }
}

const std::vector<PendingSignals::Pending>& PendingSignals::list() const {
    static const std::vector<Pending> none;
    return list_ == nullptr ? none : *list_;
}

void PendingSignals::add(const void* address, const SignalList& signals) {
    constexpr size_t most = 64;
    const auto same = [&](const Pending& one) { return one.signals == signals; };
    if (std::ranges::any_of(list(), same)) {
        return;
    }
    std::vector<Pending> all = list();
    std::erase_if(all, [&](const Pending& one) { // the new one contains it, or it is very old
        return one.address == address &&
               (signals->before == one.signals ||
                (signals->before != nullptr && signals->before->before == one.signals));
    });
    if (all.size() == most) {
        all.erase(all.begin());
    }
    all.push_back({address, signals});
    list_ = std::make_shared<const std::vector<Pending>>(std::move(all));
}

void PendingSignals::learn(const PendingSignals& more) {
    if (list_ == nullptr || list_ == more.list_) {
        list_ = list_ == nullptr ? more.list_ : list_;
        return;
    }
    for (const Pending& one : more.list()) {
        add(one.address, one.signals);
    }
}

SignalList Signals::read(const void* address, Scope scope, uint32_t block) const {
    const auto found = places_.find(address);
    return found != places_.end() &&
                   include_each_other(scope, block, found->second.scope, found->second.block)
               ? found->second.signals
               : nullptr;
}

void Signals::write(const void* address, Scope scope, uint32_t block, bool replaces,
                    const HandedOn& handed_on, const SignalList& known) {
    const auto found = places_.find(address);
    if (found == places_.end() && handed_on.empty()) {
        return; // nothing to hand on
    }
    SignalList kept = replaces ? nullptr : read(address, scope, block);
    if (kept == known) {
        kept = nullptr; // it is part of what is handed on
    }
    if (!handed_on.empty() && (kept == nullptr || kept->handed_on != handed_on)) {
        auto own = std::make_shared<Signal>();
        own->block = block;
        own->handed_on = handed_on;
        own->before = std::move(kept);
        kept = std::move(own);
    }
    places_[address] = {std::move(kept), block, scope};
}

} // namespace flash::simt
