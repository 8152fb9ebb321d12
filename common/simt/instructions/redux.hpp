// redux.sync: each lane of a mask gives a number, and all receive their sum, or their minimum, or
// another reduction. (PTX ISA, "redux.sync"; CUDA calls it __reduce_add_sync and so on, from
// compute capability 8.0.)
#pragma once

#include <cstdint>

#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

using Reduction = uint32_t (*)(uint32_t, uint32_t);

/// The lanes of `mask` meet; returns `of_two` of all their values.
uint32_t reduce(const char* operation, uint32_t mask, uint32_t value, Reduction of_two,
                SourceLocation location);

} // namespace flash::simt

#define FLASH_SIMT_REDUCE(name, type, expression)                                                  \
    inline type name(unsigned mask, type value,                                                    \
                     flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) { \
        const auto of_two = [](uint32_t one, uint32_t other) {                                     \
            const auto a = static_cast<type>(one);                                                 \
            const auto b = static_cast<type>(other);                                               \
            return static_cast<uint32_t>(expression);                                              \
        };                                                                                         \
        return static_cast<type>(                                                                  \
            flash::simt::reduce(#name, mask, static_cast<uint32_t>(value), of_two, location));     \
    }

FLASH_SIMT_REDUCE(__reduce_add_sync, unsigned, a + b)
FLASH_SIMT_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
FLASH_SIMT_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
FLASH_SIMT_REDUCE(__reduce_add_sync, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
FLASH_SIMT_REDUCE(__reduce_min_sync, int, a < b ? a : b)
FLASH_SIMT_REDUCE(__reduce_max_sync, int, a < b ? b : a)
FLASH_SIMT_REDUCE(__reduce_and_sync, unsigned, a& b)
FLASH_SIMT_REDUCE(__reduce_or_sync, unsigned, a | b)
FLASH_SIMT_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef FLASH_SIMT_REDUCE
