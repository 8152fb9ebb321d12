// Numbers of 8 bits: e4m3, 1 sign, 4 exponent and 3 mantissa bits. (PTX ISA, "cvt", .e4m3x2.)
#pragma once

#include <cstdint>

#include "common/types.hpp"

#ifdef __NVCC__

namespace flash {

/// Four floats, rounded to e4m3 (nearest even), in one register, the first in its lowest byte. What
/// is too large becomes the largest number, 448.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
    uint32_t packed;
    asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; "
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
        : "=r"(packed)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return packed;
}

} // namespace flash

#else
#include "common/simt/instructions/e4m3.hpp"
#endif
