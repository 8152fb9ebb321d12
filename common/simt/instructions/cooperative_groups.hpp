// Cooperative groups: a block, a grid, a warp or a part of it as an object. They call the barriers,
// votes and shuffles that a kernel could call itself.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "common/simt/instructions/collectives.hpp"
#include "common/simt/instructions/cooperative_launch.hpp"
#include "common/simt/instructions/warp.hpp"
#include "common/simt/language/keywords.hpp"

namespace flash::simt {

constexpr unsigned long long rank_in(uint3 index, dim3 size) {
    return index.x + size.x * (index.y + static_cast<unsigned long long>(size.y) * index.z);
}
inline unsigned thread_rank() { return static_cast<unsigned>(rank_in(threadIdx, blockDim)); }
inline unsigned threads_of_block() { return static_cast<unsigned>(volume(blockDim)); }

} // namespace flash::simt

namespace cooperative_groups {

using Location = flash::simt::SourceLocation;

/// A value of any size, of which a shuffle takes 8 bytes at a time.
template <class T, class Shuffle> T in_words(T value, Shuffle shuffle) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (sizeof(T) <= 8) {
        return shuffle(value);
    } else {
        uint64_t words[(sizeof(T) + 7) / 8] = {};
        __builtin_memcpy(words, &value, sizeof value);
        for (uint64_t& word : words) {
            word = shuffle(word);
        }
        __builtin_memcpy(&value, words, sizeof value);
        return value;
    }
}

/// The lanes of a mask, counted from its lowest. What tiles and coalesced groups have in common.
class lanes_of_warp {
  public:
    explicit lanes_of_warp(unsigned mask) : mask_(mask) {}
    lanes_of_warp(unsigned mask, unsigned rank, unsigned groups)
        : mask_(mask), meta_group_rank_(rank), meta_group_size_(groups) {}

    void sync(Location location = Location::here()) const { __syncwarp(mask_, location); }
    unsigned size() const { return static_cast<unsigned>(std::popcount(mask_)); }
    unsigned num_threads() const { return size(); }
    unsigned mask() const { return mask_; }
    /// Of this group among those that its parent was divided into, and how many they are.
    unsigned meta_group_rank() const { return meta_group_rank_; }
    unsigned meta_group_size() const { return meta_group_size_; }
    unsigned thread_rank() const {
        const unsigned below = (1u << flash::simt::thread_rank() % 32) - 1;
        return static_cast<unsigned>(std::popcount(mask_ & below));
    }

    int any(int predicate, Location location = Location::here()) const {
        return __any_sync(mask_, predicate, location);
    }
    int all(int predicate, Location location = Location::here()) const {
        return __all_sync(mask_, predicate, location);
    }
    unsigned ballot(int predicate, Location location = Location::here()) const {
        return by_rank(__ballot_sync(mask_, predicate, location));
    }
    template <class T> unsigned match_any(T value, Location location = Location::here()) const {
        return by_rank(__match_any_sync(mask_, value, location));
    }
    template <class T>
    unsigned match_all(T value, int& all, Location location = Location::here()) const {
        return by_rank(__match_all_sync(mask_, value, &all, location));
    }

    /// The value of another member, by its rank; its own where there is no such member.
    template <class T> T shfl(T value, unsigned rank, Location location = Location::here()) const {
        return from(value, rank % size(), location);
    }
    template <class T>
    T shfl_up(T value, unsigned distance, Location location = Location::here()) const {
        return from(value, thread_rank() - distance, location);
    }
    template <class T>
    T shfl_down(T value, unsigned distance, Location location = Location::here()) const {
        return from(value, thread_rank() + distance, location);
    }

  protected:
    template <class T> T from(T value, unsigned rank, Location location) const {
        const int source = lane_of(rank < size() ? rank : thread_rank());
        return in_words(
            value, [=, this](auto word) { return __shfl_sync(mask_, word, source, 32, location); });
    }
    int lane_of(unsigned rank) const {
        unsigned rest = mask_;
        for (; rank > 0; --rank) {
            rest &= rest - 1;
        }
        return std::countr_zero(rest);
    }
    unsigned by_rank(unsigned lanes) const {
        unsigned ranks = 0;
        for (unsigned rank = 0; rank < size(); ++rank) {
            ranks |= (lanes >> lane_of(rank) & 1) << rank;
        }
        return ranks;
    }

    unsigned mask_;
    unsigned meta_group_rank_ = 0, meta_group_size_ = 1;
};

class thread_block {
  public:
    static void sync(Location location = Location::here()) { __syncthreads(location); }
    static unsigned thread_rank() { return flash::simt::thread_rank(); }
    static unsigned size() { return flash::simt::threads_of_block(); }
    static unsigned num_threads() { return size(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
  public:
    static bool is_valid() { return flash::simt::blocks_can_meet(); }
    static void sync(Location location = Location::here()) { flash::simt::meet_blocks(location); }
    static unsigned long long block_rank() { return flash::simt::rank_in(blockIdx, gridDim); }
    static unsigned long long num_blocks() { return flash::simt::volume(gridDim); }
    static unsigned long long thread_rank() {
        return block_rank() * thread_block::size() + thread_block::thread_rank();
    }
    static unsigned long long size() { return num_blocks() * thread_block::size(); }
    static unsigned long long num_threads() { return size(); }
    static dim3 block_index() { return blockIdx; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 group_dim() { return gridDim; }
};
inline grid_group this_grid() { return {}; }

class coalesced_group : public lanes_of_warp {
  public:
    using lanes_of_warp::lanes_of_warp;
};
inline coalesced_group coalesced_threads(Location location = Location::here()) {
    return coalesced_group(__activemask(location));
}

/// Aligned lanes of one warp, `Size` of them.
template <unsigned Size, class Parent = void> class thread_block_tile : public lanes_of_warp {
    static_assert(Size <= 32 && std::has_single_bit(Size),
                  "a tile has 1, 2, 4, 8, 16 or 32 threads; larger ones are not supported");

  public:
    /// One of the tiles of a group, which it counts from the group's beginning.
    template <class Group>
    explicit thread_block_tile(const Group& parent)
        : lanes_of_warp(lanes(), static_cast<unsigned>(parent.thread_rank()) / Size,
                        (static_cast<unsigned>(parent.size()) + Size - 1) / Size) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<Size, Other>& same) : lanes_of_warp(same) {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return flash::simt::thread_rank() % Size; }
    template <class T> T shfl(T value, unsigned rank, Location location = Location::here()) const {
        return in_words(value, [=, this](auto word) {
            return __shfl_sync(mask_, word, static_cast<int>(rank), Size, location);
        });
    }
    template <class T>
    T shfl_up(T value, unsigned distance, Location location = Location::here()) const {
        return in_words(value, [=, this](auto word) {
            return __shfl_up_sync(mask_, word, distance, Size, location);
        });
    }
    template <class T>
    T shfl_down(T value, unsigned distance, Location location = Location::here()) const {
        return in_words(value, [=, this](auto word) {
            return __shfl_down_sync(mask_, word, distance, Size, location);
        });
    }
    template <class T>
    T shfl_xor(T value, unsigned lanes, Location location = Location::here()) const {
        return in_words(value, [=, this](auto word) {
            return __shfl_xor_sync(mask_, word, static_cast<int>(lanes), Size, location);
        });
    }

  private:
    static unsigned lanes() {
        const unsigned first = flash::simt::thread_rank() % 32 / Size * Size;
        return (Size == 32 ? ~0u : (1u << Size % 32) - 1) << first;
    }
};

/// Any of the groups, as functions take them that do not care which it is.
class thread_group {
  public:
    thread_group(thread_block) : kind_(block), lanes_(0) {}
    thread_group(grid_group) : kind_(grid), lanes_(0) {}
    thread_group(lanes_of_warp lanes) : kind_(warp), lanes_(lanes) {}

    void sync(Location location = Location::here()) const {
        if (kind_ == warp) {
            lanes_.sync(location);
        } else if (kind_ == block) {
            thread_block::sync(location);
        } else {
            grid_group::sync(location);
        }
    }
    unsigned long long size() const {
        return kind_ == warp    ? lanes_.size()
               : kind_ == block ? thread_block::size()
                                : grid_group::size();
    }
    unsigned long long num_threads() const { return size(); }
    unsigned long long thread_rank() const {
        return kind_ == warp    ? lanes_.thread_rank()
               : kind_ == block ? thread_block::thread_rank()
                                : grid_group::thread_rank();
    }

  private:
    enum { block, grid, warp } kind_;
    friend coalesced_group tiled_partition(const thread_group& parent, unsigned size);

    lanes_of_warp lanes_;
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
    return thread_block_tile<Size, Parent>(parent);
}
/// At run time; nothing larger than a warp. Of lanes, `size` at a time in the order of their ranks.
inline coalesced_group tiled_partition(const lanes_of_warp& parent, unsigned size) {
    const unsigned tile = parent.thread_rank() / size;
    unsigned lanes = 0;
    unsigned rank = 0;
    for (unsigned rest = parent.mask(); rest != 0; rest &= rest - 1, ++rank) {
        lanes |= rank / size == tile ? rest & -rest : 0;
    }
    return {lanes, tile, (parent.size() + size - 1) / size};
}
inline coalesced_group tiled_partition(const thread_block&, unsigned size) {
    const unsigned first = flash::simt::thread_rank() % 32 / size * size;
    const unsigned lanes = (size == 32 ? ~0u : (1u << size % 32) - 1) << first;
    return {lanes, thread_block::thread_rank() / size, (thread_block::size() + size - 1) / size};
}
inline coalesced_group tiled_partition(const thread_group& parent, unsigned size) {
    return parent.kind_ == thread_group::warp ? tiled_partition(parent.lanes_, size)
                                              : tiled_partition(thread_block(), size);
}
/// Those of a group of lanes whose label is the same. The groups count by their lowest lanes.
template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label,
                                  Location location = Location::here()) {
    const unsigned lanes = __match_any_sync(group.mask(), label, location);
    const unsigned lowest = lanes & -lanes;
    const bool leads = lowest == 1u << flash::simt::thread_rank() % 32;
    const unsigned leaders = __ballot_sync(group.mask(), leads, location);
    return {lanes, static_cast<unsigned>(std::popcount(leaders & (lowest - 1))),
            static_cast<unsigned>(std::popcount(leaders))};
}
/// Group 1 are those for whom it holds, unless it holds for all or none.
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate,
                                 Location location = Location::here()) {
    const unsigned holds = __ballot_sync(group.mask(), predicate, location);
    if (holds == 0 || holds == group.mask()) {
        return coalesced_group(group.mask());
    }
    return {predicate ? holds : group.mask() & ~holds, predicate ? 1u : 0u, 2};
}

/// The group copies bytes, each member its share, and waits for them in wait().
template <class Group>
void memcpy_async(const Group& group, void* destination, const void* source, size_t bytes) {
    using Word = unsigned;
    const size_t words = bytes / sizeof(Word);
    for (size_t i = group.thread_rank(); i < words; i += group.size()) {
        static_cast<Word*>(destination)[i] = static_cast<const Word*>(source)[i];
    }
    for (size_t i = words * sizeof(Word) + group.thread_rank(); i < bytes; i += group.size()) {
        static_cast<char*>(destination)[i] = static_cast<const char*>(source)[i];
    }
}
template <class Group> void wait(const Group& group, Location location = Location::here()) {
    group.sync(location);
}

template <class Group> void sync(const Group& group, Location location = Location::here()) {
    group.sync(location);
}

} // namespace cooperative_groups
