// What the threads of a warp or a block do together: barriers, votes, shuffles.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "common/simt/site.hpp"

namespace flash::simt {

constexpr uint32_t full_mask = 0xffffffffu;

/// One operand of each lane; the last lane to arrive combines those of the lanes that meet.
using Operands = std::array<void*, 32>;
using Combine = void (*)(const Operands& operands, uint32_t lanes);

/// What a meeting of lanes counts as.
enum class Meeting : uint8_t { sync, collective, mma, ldmatrix };

/// The lanes of `mask` meet. `operation` names it in messages.
void warp_collective(Meeting meeting, const char* operation, uint32_t mask, void* operand, Combine combine, Site site);

int block_barrier(const char* operation, bool predicate, Site site);

/// Bits of the lanes of `mask` whose predicate holds.
uint32_t vote(const char* operation, uint32_t mask, bool predicate, Site site);

enum class Shuffle { index, up, down, bitwise_xor };
uint64_t exchange(Shuffle kind, uint32_t mask, uint64_t bits, int argument, int width, Site site);

uint32_t active_mask();

/// A value of at most 8 bytes through a shuffle.
template <class T> inline T shuffle_value(Shuffle kind, uint32_t mask, T value, int argument, int width, Site site) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = exchange(kind, mask, bits, argument, width, site);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace flash::simt

inline void __syncthreads(flash::simt::Site site = flash::simt::Site::here()) {
    flash::simt::block_barrier("__syncthreads", false, site);
}
inline int __syncthreads_count(int predicate, flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::block_barrier("__syncthreads_count", predicate != 0, site);
}
inline int __syncthreads_or(int predicate, flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::block_barrier("__syncthreads_or", predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate, flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::block_barrier("__syncthreads_and", predicate == 0, site) == 0; // nobody says no
}

inline void __syncwarp(unsigned mask = flash::simt::full_mask, flash::simt::Site site = flash::simt::Site::here()) {
    flash::simt::warp_collective(flash::simt::Meeting::sync, "__syncwarp", mask, nullptr, nullptr, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::vote("__ballot_sync", mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate, flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::vote("__any_sync", mask, predicate != 0, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::vote("__all_sync", mask, predicate == 0, site) == 0;
}
inline unsigned __activemask() { return flash::simt::active_mask(); }

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
                     flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::index, mask, value, lane, width, site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::up, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::down, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                         flash::simt::Site site = flash::simt::Site::here()) {
    return flash::simt::shuffle_value(flash::simt::Shuffle::bitwise_xor, mask, value, lane_mask, width, site);
}
