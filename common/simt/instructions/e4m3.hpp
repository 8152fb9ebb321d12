// Twin of common/cuda/ptx/e4m3.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/simt/language/bits.hpp" // __byte_perm
#include "common/types.hpp"

namespace flash {

inline uint32_t pack_e4m3(float a, float b, float c, float d) {
    const auto byte = [](float x) -> uint32_t {
        const float most = largest_number(DType::e4m3);
        return from_float<E4m3>(std::abs(x) > most ? std::copysign(most, x) : x).bits;
    };
    return byte(a) | byte(b) << 8 | byte(c) << 16 | byte(d) << 24;
}

} // namespace flash
