// Atomic operations on global and shared memory, and the fences by which they order other accesses.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/simt/machine/observer.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

/// The 2, 4 or 8 bytes at an address, read; the runtime notes it as part of an atomic operation.
uint64_t atomic_begin(const void* address, unsigned bytes, Scope scope, Atomic how,
                      SourceLocation location);

/// Replaces `expected` by `desired`; false, and `expected` is what was there, when another value
/// was.
bool atomic_replace(void* address, unsigned bytes, uint64_t& expected, uint64_t desired);

/// The operation has found this value, and has written or, like a comparison that failed, has not.
void atomic_end(const void* address, uint64_t found, bool written, Scope scope,
                SourceLocation location);

template <class T> inline uint64_t atomic_bits(const T& value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

/// Applies `change` to the value at `address`, indivisibly, where `holds` is true of it; returns
/// the value before.
template <class T, class Change, class Condition>
inline T atomic_update(T* address, Scope scope, SourceLocation location, Change change,
                       Condition holds, Atomic how = Atomic::updates) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
    uint64_t before = atomic_begin(address, sizeof(T), scope, how, location);
    while (true) {
        T value;
        __builtin_memcpy(&value, &before, sizeof value);
        const bool written = holds(value);
        if (!written || atomic_replace(address, sizeof(T), before, atomic_bits<T>(change(value)))) {
            atomic_end(address, before, written, scope, location);
            return value;
        }
    }
}

/// Adds four floats to four side by side, each indivisibly: one access of 16 bytes.
void atomic_add_4(float* address, const float (&values)[4], SourceLocation location);

} // namespace flash::simt

// The second parameter does not take part in deducing T, so that atomicAdd(&counter, 1) works for
// unsigned counters.
#define FLASH_SIMT_ATOMIC_OF_SCOPE(name, scope, expression, how)                                   \
    template <class T>                                                                             \
    inline T name(T* address, std::type_identity_t<T> operand,                                     \
                  flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {    \
        return flash::simt::atomic_update(                                                         \
            address, flash::simt::Scope::scope, location,                                          \
            [=](T value) -> T { return expression; }, [](T) { return true; },                      \
            flash::simt::Atomic::how);                                                             \
    }
#define FLASH_SIMT_ATOMIC_THAT(how, name, expression)                                              \
    FLASH_SIMT_ATOMIC_OF_SCOPE(name, device, expression, how)                                      \
    FLASH_SIMT_ATOMIC_OF_SCOPE(name##_block, block, expression, how)                               \
    FLASH_SIMT_ATOMIC_OF_SCOPE(name##_system, system, expression, how)
#define FLASH_SIMT_ATOMIC(name, expression) FLASH_SIMT_ATOMIC_THAT(updates, name, expression)

FLASH_SIMT_ATOMIC(atomicAdd, value + operand)
FLASH_SIMT_ATOMIC(atomicSub, value - operand)
FLASH_SIMT_ATOMIC(atomicInc, value >= operand ? 0 : value + 1)
FLASH_SIMT_ATOMIC(atomicDec, value == 0 || value > operand ? operand : value - 1)
FLASH_SIMT_ATOMIC(atomicMin, operand < value ? operand : value)
FLASH_SIMT_ATOMIC(atomicMax, value < operand ? operand : value)
FLASH_SIMT_ATOMIC_THAT(overwrites, atomicExch, (static_cast<void>(value), operand))
FLASH_SIMT_ATOMIC(atomicAnd, value& operand)
FLASH_SIMT_ATOMIC(atomicOr, value | operand)
FLASH_SIMT_ATOMIC(atomicXor, value ^ operand)
#undef FLASH_SIMT_ATOMIC
#undef FLASH_SIMT_ATOMIC_THAT
#undef FLASH_SIMT_ATOMIC_OF_SCOPE

// A comparison that fails writes nothing.
#define FLASH_SIMT_CAS(name, scope)                                                                \
    template <class T>                                                                             \
    inline T name(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> desired,   \
                  flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {    \
        return flash::simt::atomic_update(                                                         \
            address, flash::simt::Scope::scope, location, [=](T) -> T { return desired; },         \
            [=](T value) {                                                                         \
                return flash::simt::atomic_bits<T>(value) ==                                       \
                       flash::simt::atomic_bits<T>(expected);                                      \
            },                                                                                     \
            flash::simt::Atomic::compares);                                                        \
    }
FLASH_SIMT_CAS(atomicCAS, device)
FLASH_SIMT_CAS(atomicCAS_block, block)
FLASH_SIMT_CAS(atomicCAS_system, system)
#undef FLASH_SIMT_CAS

void __threadfence();
void __threadfence_block();
void __threadfence_system();
