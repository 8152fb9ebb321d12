// The exponential that the hardware has: 2^x, one instruction.
#pragma once

namespace flash {
inline constexpr float log2_e = 1.44269504f; // e^x = 2^(x log2(e))
inline constexpr float ln_2 = 0.693147181f;  // log(x) = log2(x) ln(2)
} // namespace flash

#ifdef __NVCC__

namespace flash {

/// 2^x to about 2 ulp. Results below 2^-126 become 0. (PTX ISA, "ex2.approx.ftz.f32". exp2f has two
/// more instructions, which keep such small numbers.)
__device__ __forceinline__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace flash

#else
#include "common/simt/instructions/exp2.hpp"
#endif
