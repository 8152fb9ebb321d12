#include "common/simt/machine/printing.hpp"

#include <cstdio>

namespace flash::simt {
namespace {

thread_local uint64_t own_turn = 0; // of the worker's block

// A block that prints more than this while others are before it, does not wait for them.
constexpr size_t enough = 1 << 20;

} // namespace

void Printing::begin_launch() {
    const std::lock_guard lock(mutex_);
    next_ = 0;
    ended_.clear();
    later_.clear();
}

void Printing::begin_block(uint64_t turn) { own_turn = turn; }

void Printing::print(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (own_turn == next_) {
        write(own_turn, text);
        return;
    }
    std::string& waiting = later_[own_turn];
    waiting += text;
    if (waiting.size() > enough) {
        write(own_turn, "");
    }
}

void Printing::end_block(uint64_t turn) {
    const std::lock_guard lock(mutex_);
    ended_.insert(turn);
    while (ended_.erase(next_) != 0) {
        write(next_, "");
        ++next_;
    }
}

void Printing::end_launch(uint64_t last_turn) {
    const std::lock_guard lock(mutex_);
    while (!later_.empty() && later_.begin()->first <= last_turn) {
        write(later_.begin()->first, "");
    }
    later_.clear();
    std::fflush(stdout);
}

/// All that a block has printed so far, and more.
void Printing::write(uint64_t turn, std::string_view more) {
    if (const auto waiting = later_.extract(turn); !waiting.empty()) {
        std::fwrite(waiting.mapped().data(), 1, waiting.mapped().size(), stdout);
    }
    std::fwrite(more.data(), 1, more.size(), stdout);
}

Printing& printing() {
    static Printing only;
    return only;
}

} // namespace flash::simt
