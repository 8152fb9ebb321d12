// What makes the detector fast: numbers in the place of what is remembered.
//
// Neighbouring bytes have the same past, as a rule: a thread reads a row, then the next thread
// reads it. So pasts are numbered, and what is remembered of four bytes is two numbers (Cell).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/simt/observers/history.hpp"

namespace flash::simt {

/// Values with numbers; the empty one is 0. A value that was numbered before has that number again,
/// as a rule.
template <class T> class Interned {
  public:
    const T& operator[](uint32_t number) const { return all_[number]; }
    uint32_t count() const { return static_cast<uint32_t>(all_.size()); }

    uint32_t number(const T& value) {
        uint32_t& known = recent_[hash(value)];
        if (known == 0 || all_[known] != value) {
            known = count();
            all_.push_back(value);
        }
        return known;
    }

    /// Gives back all the values, and begins anew.
    std::vector<T> take() {
        recent_.fill(0);
        return std::exchange(all_, std::vector<T>(1));
    }

  private:
    static_assert(sizeof(T) % sizeof(uint32_t) == 0 && std::has_unique_object_representations_v<T>);

    static size_t hash(const T& value) {
        std::array<uint32_t, sizeof(T) / sizeof(uint32_t)> words;
        std::memcpy(words.data(), &value, sizeof value);
        uint64_t sum = 0;
        for (const uint32_t word : words) {
            sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        }
        return static_cast<size_t>(sum >> 52);
    }

    std::vector<T> all_ = std::vector<T>(1);
    std::array<uint32_t, 4096> recent_{}; // by hash
};

/// Writes with numbers. Those of a warp's lanes differ in the lowest bits.
class Writes {
  public:
    Access operator[](uint32_t number) const {
        Access write = all_[number / 32];
        if (write.block != 0 && write.engine == 0) {
            write.lanes = 1u << number % 32;
        }
        return write;
    }

    uint32_t number(Access write) {
        const auto lane =
            write.engine == 0 ? static_cast<uint32_t>(std::countr_zero(write.lanes)) : 0;
        write.lanes = write.engine == 0 ? 0 : write.lanes;
        return all_.number(write) * 32 + lane;
    }

    /// From here on there are the numbers of writes to come.
    uint32_t end() const { return all_.count() * 32; }
    uint32_t count() const { return all_.count(); }

    /// By their numbers / 32, without the lanes.
    Interned<Access>& all() { return all_; }

  private:
    Interned<Access> all_;
};

/// A warp's lanes read neighbouring cells, each its own. So that these have the same Reads, its
/// lanes are counted from one of them on, around the warp: the frame.
inline Access into_frame(Access access, uint32_t frame) {
    access.lanes = std::rotr(access.lanes, static_cast<int>(frame));
    return access;
}
inline Access out_of_frame(Access access, uint32_t frame) {
    access.lanes = std::rotl(access.lanes, static_cast<int>(frame));
    return access;
}

/// What threads of a block have read of its shared memory since the last barrier. In its Access,
/// the epoch and the block are 1, and the clock counts from the barrier. So the numbers of one
/// epoch mean the same in the next one.
struct EpochReads {
    Interned<Reads> histories;
    Interned<ListedAccess> lists;
    uint32_t begin = 0; // a cell has 32 times the number of its Reads, its frame and this; a
                        // smaller one is none
};

/// Neighbouring cells are alike, as a rule. What was done with one, which nothing but the cell
/// decides, is done with the next one by a copy.
class CellMemo {
  public:
    template <class Use> void operator()(Cell& cell, Use use) {
        if (known_ && cell == before_) {
            cell = after_;
            return;
        }
        before_ = cell;
        use(cell);
        after_ = cell;
        known_ = true;
    }

  private:
    Cell before_, after_;
    bool known_ = false;
};

} // namespace flash::simt
