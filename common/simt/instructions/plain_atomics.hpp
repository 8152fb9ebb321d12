// Atomic operations on numbers of 16 bits, and on those of cuda_fp16.h and cuda_bf16.h.
#pragma once

#include <cstdint>

#include "common/simt/instructions/atomics.hpp"
#include "common/simt/language/narrow.hpp"

namespace flash::simt {

/// Replaces the 16 bits at an address by `desired` if they are `expected`; returns what was there.
uint16_t atomic_replace_16(uint16_t* address, uint16_t expected, uint16_t desired,
                           SourceLocation location);
uint16_t atomic_add_narrow(uint16_t* address, uint16_t bits, uint16_t (*sum)(uint16_t, uint16_t),
                           SourceLocation location);

} // namespace flash::simt

inline unsigned short
atomicCAS(unsigned short* address, unsigned short expected, unsigned short desired,
          flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::atomic_replace_16(address, expected, desired, location);
}

template <class T>
inline flash::simt::Narrow<T>
atomicAdd(flash::simt::Narrow<T>* address, std::type_identity_t<flash::simt::Narrow<T>> operand,
          flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    using Number = flash::simt::Narrow<T>;
    return Number::of_bits(flash::simt::atomic_add_narrow(
        &address->bits, operand.bits,
        [](uint16_t a, uint16_t b) { return (Number::of_bits(a) + Number::of_bits(b)).bits; },
        location));
}

inline unsigned
atomicDec(unsigned* address, unsigned operand,
          flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::atomic_update(address, location, [=](unsigned value) {
        return value == 0 || value > operand ? operand : value - 1;
    });
}
