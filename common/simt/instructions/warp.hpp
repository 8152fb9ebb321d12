// What a warp can say of itself beside votes and shuffles, and clocks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/simt/language/trap.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

/// The lanes of the current thread's warp that come to this line before the block can do nothing
/// else. (On a GPU any lanes that run together, so at most these.)
uint32_t active_lanes(SourceLocation location);

/// The lanes of `mask` that hold the same bits.
uint32_t lanes_with_same(const char* operation, uint32_t mask, uint64_t bits,
                         SourceLocation location);

template <class T> uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

uint64_t nanoseconds();
void sleep(unsigned nanoseconds);

} // namespace flash::simt

inline unsigned
__activemask(flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::active_lanes(location);
}

template <class T>
inline unsigned
__match_any_sync(unsigned mask, T value,
                 flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::lanes_with_same("__match_any_sync", mask, flash::simt::bits_of(value),
                                        location);
}
template <class T>
inline unsigned
__match_all_sync(unsigned mask, T value, int* all,
                 flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    const unsigned same = flash::simt::lanes_with_same("__match_all_sync", mask,
                                                       flash::simt::bits_of(value), location);
    *all = same == mask ? 1 : 0;
    return same == mask ? mask : 0;
}

/// Time on this computer, a nanosecond to a cycle. clock() in a kernel is the same (warp.cpp).
inline long long clock64() { return static_cast<long long>(flash::simt::nanoseconds()); }
inline unsigned long long __globaltimer() { return flash::simt::nanoseconds(); }

/// Others have their turn.
inline void __nanosleep(unsigned nanoseconds) { flash::simt::sleep(nanoseconds); }
