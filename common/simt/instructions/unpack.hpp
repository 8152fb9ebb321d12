// Twin of common/cuda/ptx/unpack.hpp.
#pragma once

#include <cstdint>

#include "common/simt/language/vector_types.hpp"
#include "common/types.hpp"

namespace flash {

template <class T> inline float2 unpack(uint32_t packed) {
    return {to_float(T{static_cast<uint16_t>(packed)}),
            to_float(T{static_cast<uint16_t>(packed >> 16)})};
}

} // namespace flash
