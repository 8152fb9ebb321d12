// Atomic operations on the numbers of cuda_fp16.h and cuda_bf16.h.
#pragma once

#include <cstdint>

#include "common/simt/instructions/atomics.hpp"
#include "common/simt/language/narrow.hpp"

namespace flash::simt {

uint16_t atomic_add_narrow(uint16_t* address, uint16_t bits, uint16_t (*sum)(uint16_t, uint16_t),
                           SourceLocation location);

} // namespace flash::simt

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
