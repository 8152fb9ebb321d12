#include "common/simt/observers/clocks.hpp"

#include <algorithm>
#include <bit>

namespace flash::simt {
namespace {

void raise(std::vector<uint32_t>& values, const std::vector<uint32_t>& to) {
    values.resize(std::max(values.size(), to.size()));
    for (size_t i = 0; i < to.size(); ++i) {
        values[i] = std::max(values[i], to[i]);
    }
}

void lower(std::vector<uint32_t>& values, const std::vector<uint32_t>& to) {
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::min(values[i], i < to.size() ? to[i] : 0);
    }
}

void raise(Clocks::Knowledge& knowledge, const Clocks::Knowledge& to) {
    raise(knowledge.known, to.known);
    raise(knowledge.fenced, to.fenced);
    knowledge.blocks.learn(to.blocks);
    knowledge.handed_on.learn(to.handed_on);
    knowledge.pending.learn(to.pending);
}

} // namespace

void raise(std::vector<uint32_t>& values, size_t place, uint32_t to) {
    values.resize(std::max(values.size(), place + 1));
    values[place] = std::max(values[place], to);
}

void Clocks::begin_block(unsigned threads) {
    known_.assign(threads, &all_);
    own_.resize(threads);
    all_ = {};
    highest_ = 0;
    reset(threads);
}

void Clocks::reset(unsigned threads) {
    ++state_;
    clocks_.assign(threads, ++highest_);
    for (const Knowledge*& known : known_) {
        if (known != &all_) {
            raise(all_, *known);
            known = &all_;
        }
    }
    raise(all_.known, clocks_);
}

Clocks::Knowledge& Clocks::own(unsigned thread) {
    if (known_[thread] == &all_) {
        own_[thread] = all_;
        known_[thread] = &own_[thread];
    }
    return own_[thread];
}

void Clocks::meet(unsigned warp, uint32_t lanes) {
    joint_.known.clear();
    joint_.fenced.clear();
    joint_.blocks = {};
    joint_.handed_on = {};
    joint_.pending = {};
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        release(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), joint_);
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        acquire(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), joint_);
    }
}

void Clocks::tick(unsigned thread) { highest_ = std::max(highest_, ++clocks_[thread]); }

void Clocks::release(unsigned thread, Knowledge& into) {
    tick(thread);
    raise(into, *known_[thread]);
    into.known[thread] = clocks_[thread];
}

void Clocks::acquire(unsigned thread, const Knowledge& from) {
    ++state_;
    raise(own(thread), from);
}

Progress Clocks::step(unsigned thread) {
    tick(thread);
    std::vector<uint32_t> progress = known_[thread]->known;
    progress[thread] = clocks_[thread];
    return std::make_shared<const std::vector<uint32_t>>(std::move(progress));
}

void Clocks::learn_ends(unsigned thread, uint32_t channel, uint32_t count) {
    ++state_;
    raise(own(thread).known, channel, count);
}

void Clocks::share(unsigned warp, uint32_t lanes, const std::vector<uint32_t>& channels) {
    ++state_;
    joint_.known.clear();
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        tell(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)), channels, joint_);
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        Knowledge& lane = own(warp * 32 + static_cast<unsigned>(std::countr_zero(rest)));
        for (const uint32_t channel : channels) {
            raise(lane.known, channel, joint_.known[channel]);
        }
    }
}

void Clocks::tell(unsigned thread, const std::vector<uint32_t>& channels, Knowledge& into) const {
    const std::vector<uint32_t>& known = known_[thread]->known;
    for (const uint32_t channel : channels) {
        raise(into.known, channel, channel < known.size() ? known[channel] : 0);
    }
}

void Clocks::fence(unsigned thread) {
    ++state_;
    Knowledge& knowledge = own(thread);
    raise(knowledge.fenced, knowledge.known);
    tick(thread); // what it does from here on, is not fenced
    knowledge.fenced[thread] = clocks_[thread];
}

const Clocks::Knowledge& Clocks::common(unsigned first, unsigned count) {
    const auto [place, is_new] = found_.try_emplace({first, count});
    if (is_new || place->second.state != state_) {
        place->second = {state_, find_common(first, count)};
    }
    return place->second.common;
}

Clocks::Knowledge Clocks::find_common(unsigned first, unsigned count) const {
    constexpr uint32_t all = ~uint32_t{0};
    Knowledge result = *known_[first];
    std::fill_n(result.known.begin() + first, count, all);
    for (unsigned thread = first; thread < first + count; ++thread) {
        const uint32_t own = result.known[thread];
        lower(result.known, known_[thread]->known);
        lower(result.fenced, known_[thread]->fenced);
        result.known[thread] = own;
    }
    return result;
}

} // namespace flash::simt
