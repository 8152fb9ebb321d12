#include "common/simt/watch/clocks.hpp"

#include <algorithm>
#include <bit>

namespace flash::simt {
namespace {

/// Of matrices with a row of `count` values per thread.
uint32_t* row(std::vector<uint32_t>& matrix, unsigned thread, size_t count) { return matrix.data() + thread * count; }

void raise(uint32_t* values, const uint32_t* to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        values[i] = std::max(values[i], to[i]);
    }
}

/// At least what `values` says: longer, if need be.
void raise(std::vector<uint32_t>& own, const std::vector<uint32_t>& values) {
    own.resize(std::max(own.size(), values.size()));
    raise(own.data(), values.data(), values.size());
}

} // namespace

void Clocks::begin_block(unsigned threads) {
    fenced_.clear();
    ends_.clear();
    epoch_begin_ = 0;
    highest_ = 0;
    reset(threads);
}

void Clocks::reset(unsigned threads) {
    ++state_;
    epoch_begin_ += highest_ + 1;
    highest_ = 0;
    if (!fresh_ || threads != threads_) {
        threads_ = threads;
        fresh_ = true;
        clocks_.assign(threads, 0);
        known_.assign(size_t{threads} * threads, 0);
        copies_.clear();
        if (!ends_.empty()) {
            for (size_t i = 1; i < ends_.size(); ++i) {
                raise(ends_[0], ends_[i]);
            }
            std::fill(ends_.begin() + 1, ends_.end(), ends_[0]);
        }
        if (!fenced_.empty()) {
            for (size_t i = 1; i < threads; ++i) {
                raise(fenced_.data(), fenced_.data() + i * threads, threads);
            }
            for (size_t i = 1; i < threads; ++i) {
                std::copy_n(fenced_.data(), threads, fenced_.data() + i * threads);
            }
        }
    }
}

bool Clocks::knows_each(unsigned thread, unsigned warp, uint32_t lanes, uint32_t clock) const {
    const uint32_t* const own = known_.data() + size_t{thread} * threads_ + size_t{warp} * 32;
    for (; lanes != 0; lanes &= lanes - 1) {
        if (own[std::countr_zero(lanes)] <= clock) {
            return false;
        }
    }
    return true;
}

void Clocks::meet(unsigned warp, uint32_t lanes) {
    Knowledge& joint = joint_;
    for (std::vector<uint32_t>* const part : {&joint.clocks, &joint.copies, &joint.ends, &joint.fenced}) {
        part->clear();
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        release(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), joint);
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        acquire(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), joint, true);
    }
}

void Clocks::release(unsigned thread, Knowledge& into) {
    into.clocks.resize(threads_);
    raise(into.clocks.data(), row(known_, thread, threads_), threads_);
    into.clocks[thread] = ++clocks_[thread];
    highest_ = std::max(highest_, clocks_[thread]);
    if (!ends_.empty()) {
        raise(into.ends, ends_[thread]);
    }
    if (!fenced_.empty()) {
        into.fenced.resize(threads_);
        raise(into.fenced.data(), row(fenced_, thread, threads_), threads_);
    }
    if (!copies_.empty()) {
        into.copies.resize(threads_);
        raise(into.copies.data(), row(copies_, thread, threads_), threads_);
    }
    fresh_ = false;
}

void Clocks::acquire(unsigned thread, const Knowledge& from, bool of_this_epoch) {
    ++state_;
    if (of_this_epoch) {
        raise(row(known_, thread, threads_), from.clocks.data(), from.clocks.size());
    }
    if (!from.copies.empty()) {
        copies_.resize(known_.size());
        raise(row(copies_, thread, threads_), from.copies.data(), from.copies.size());
    }
    if (!from.ends.empty()) {
        ends_.resize(threads_);
        raise(ends_[thread], from.ends);
    }
    if (!from.fenced.empty()) {
        fenced_.resize(known_.size());
        raise(row(fenced_, thread, threads_), from.fenced.data(), from.fenced.size());
    }
    fresh_ = false;
}

void Clocks::learn_ends(unsigned thread, uint32_t channel, uint32_t count) {
    ++state_;
    ends_.resize(threads_);
    std::vector<uint32_t>& own = ends_[thread];
    own.resize(std::max<size_t>(own.size(), channel + 1));
    own[channel] = std::max(own[channel], count);
    fresh_ = false;
}

void Clocks::fence(unsigned thread) {
    ++state_;
    fenced_.resize(known_.size());
    const uint32_t* const known = row(known_, thread, threads_);
    uint32_t* const fenced = row(fenced_, thread, threads_);
    for (size_t i = 0; i < threads_; ++i) {
        fenced[i] = std::max(fenced[i], epoch_begin_ + known[i]);
    }
    ++clocks_[thread]; // what it does from here on, is not fenced
    highest_ = std::max(highest_, clocks_[thread]);
    fenced[thread] = stamp(thread);
    fresh_ = false;
}

const Clocks::Common& Clocks::common(unsigned first, unsigned count) {
    const auto [place, is_new] = found_.try_emplace({first, count});
    if (is_new || place->second.state != state_) {
        place->second = {state_, find_common(first, count)};
    }
    return place->second.common;
}

Clocks::Common Clocks::find_common(unsigned first, unsigned count) const {
    constexpr uint32_t all = ~uint32_t{0};
    Common result{std::vector<uint32_t>(threads_, all), {}, {}};
    const auto lower = [this](std::vector<uint32_t>& values, const uint32_t* to) {
        for (size_t i = 0; i < threads_; ++i) {
            values[i] = std::min(values[i], to[i]);
        }
    };
    for (unsigned thread = first; thread < first + count; ++thread) {
        const uint32_t own = result.clocks[thread];
        lower(result.clocks, known_.data() + size_t{thread} * threads_);
        result.clocks[thread] = own;
    }
    if (!fenced_.empty()) {
        result.fenced.assign(threads_, all);
        for (unsigned thread = first; thread < first + count; ++thread) {
            lower(result.fenced, fenced_.data() + size_t{thread} * threads_);
        }
    }
    if (!ends_.empty()) {
        result.ends = ends_[first];
        for (unsigned thread = first + 1; thread < first + count; ++thread) {
            result.ends.resize(std::min(result.ends.size(), ends_[thread].size()));
            for (size_t i = 0; i < result.ends.size(); ++i) {
                result.ends[i] = std::min(result.ends[i], ends_[thread][i]);
            }
        }
    }
    return result;
}

void Clocks::learn_copies(unsigned thread, unsigned starter, uint32_t count) {
    copies_.resize(known_.size());
    raise(row(copies_, thread, threads_) + starter, &count, 1);
    fresh_ = false;
}

} // namespace flash::simt
