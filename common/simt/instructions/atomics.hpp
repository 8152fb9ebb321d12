// Atomic operations on global and shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

/// The 4 or 8 bytes at an address, read; the runtime notes it as part of an atomic operation.
uint64_t atomic_read(const void* address, unsigned bytes, SourceLocation location);

/// Replaces `expected` by `desired`; false, and `expected` is what was there, when another value
/// was.
bool atomic_replace(void* address, unsigned bytes, uint64_t& expected, uint64_t desired);

/// Applies `change` to the value at `address`, indivisibly; returns the value before.
template <class T, class Change>
inline T atomic_update(T* address, SourceLocation location, Change change) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    uint64_t before = atomic_read(address, sizeof(T), location);
    while (true) {
        T value;
        __builtin_memcpy(&value, &before, sizeof value);
        const T changed = change(value);
        uint64_t after = 0;
        __builtin_memcpy(&after, &changed, sizeof changed);
        if (atomic_replace(address, sizeof(T), before, after)) {
            return value;
        }
    }
}

/// Adds four floats to four side by side, each indivisibly: one access of 16 bytes.
void atomic_add_4(float* address, const float (&values)[4], SourceLocation location);

} // namespace flash::simt

// The second parameter does not take part in deducing T, so that atomicAdd(&counter, 1) works for
// unsigned counters.
#define FLASH_SIMT_ATOMIC(name, expression)                                                        \
    template <class T>                                                                             \
    inline T name(T* address, std::type_identity_t<T> operand,                                     \
                  flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {    \
        return flash::simt::atomic_update(address, location,                                       \
                                          [=](T value) -> T { return expression; });               \
    }

FLASH_SIMT_ATOMIC(atomicAdd, value + operand)
FLASH_SIMT_ATOMIC(atomicSub, value - operand)
FLASH_SIMT_ATOMIC(atomicInc, value >= operand ? 0 : value + 1)
FLASH_SIMT_ATOMIC(atomicMin, operand < value ? operand : value)
FLASH_SIMT_ATOMIC(atomicMax, value < operand ? operand : value)
FLASH_SIMT_ATOMIC(atomicExch, (static_cast<void>(value), operand))
FLASH_SIMT_ATOMIC(atomicAnd, value& operand)
FLASH_SIMT_ATOMIC(atomicOr, value | operand)
FLASH_SIMT_ATOMIC(atomicXor, value ^ operand)
#undef FLASH_SIMT_ATOMIC

template <class T>
inline T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
                   flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::atomic_update(address, location,
                                      [=](T value) { return value == expected ? desired : value; });
}

void __threadfence();
void __threadfence_block();
