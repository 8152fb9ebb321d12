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

} // namespace

void Clocks::reset(unsigned threads) {
    if (!fresh_ || threads != threads_) {
        threads_ = threads;
        fresh_ = true;
        clocks_.assign(threads, 0);
        known_.assign(size_t{threads} * threads, 0);
        copies_.clear();
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
    Knowledge joint;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        release(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), joint);
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        acquire(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), joint);
    }
}

void Clocks::release(unsigned thread, Knowledge& into) {
    into.clocks.resize(threads_);
    raise(into.clocks.data(), row(known_, thread, threads_), threads_);
    into.clocks[thread] = ++clocks_[thread];
    if (!copies_.empty()) {
        into.copies.resize(threads_);
        raise(into.copies.data(), row(copies_, thread, threads_), threads_);
    }
    fresh_ = false;
}

void Clocks::acquire(unsigned thread, const Knowledge& from) {
    raise(row(known_, thread, threads_), from.clocks.data(), from.clocks.size());
    if (!from.copies.empty()) {
        copies_.resize(known_.size());
        raise(row(copies_, thread, threads_), from.copies.data(), from.copies.size());
    }
    fresh_ = false;
}

void Clocks::learn_copies(unsigned thread, unsigned starter, uint32_t count) {
    copies_.resize(known_.size());
    raise(row(copies_, thread, threads_) + starter, &count, 1);
    fresh_ = false;
}

} // namespace flash::simt
