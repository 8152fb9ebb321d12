// Barriers, votes and shuffles: what the threads of a warp or a block do together.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

/// Bits of the lanes of `mask` whose predicate holds.
uint32_t vote(const char* operation, uint32_t mask, bool predicate, SourceLocation location);

enum class Shuffle { index, up, down, bitwise_xor };
uint64_t exchange(Shuffle kind, uint32_t mask, uint64_t bits, int argument, int width,
                  SourceLocation location);

/// A value of at most 8 bytes through a shuffle.
template <class T>
inline T shuffle_value(Shuffle kind, uint32_t mask, T value, int argument, int width,
                       SourceLocation location) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = exchange(kind, mask, bits, argument, width, location);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

/// All threads of all blocks meet: cooperative_groups' grid_group::sync().
void sync_grid(SourceLocation location = SourceLocation::here());

} // namespace flash::simt

void __syncthreads(flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
int __syncthreads_or(int predicate,
                     flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
int __syncthreads_and(int predicate,
                      flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
int __syncthreads_count(int predicate,
                        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
void __syncwarp(unsigned mask = 0xffffffffu,
                flash::simt::SourceLocation location = flash::simt::SourceLocation::here());

inline unsigned
__ballot_sync(unsigned mask, int predicate,
              flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::vote("__ballot_sync", mask, predicate != 0, location);
}
inline int __any_sync(unsigned mask, int predicate,
                      flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::vote("__any_sync", mask, predicate != 0, location) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::vote("__all_sync", mask, predicate == 0, location) == 0;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
                     flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::index, mask, value, lane, width,
                                      location);
}
template <class T>
inline T
__shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
               flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::up, mask, value,
                                      static_cast<int>(delta), width, location);
}
template <class T>
inline T
__shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::down, mask, value,
                                      static_cast<int>(delta), width, location);
}
template <class T>
inline T
__shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::bitwise_xor, mask, value, lane_mask,
                                      width, location);
}
