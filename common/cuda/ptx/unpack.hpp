// The opposite of pack (common/cuda/ptx/mma.hpp): the two 16-bit elements of a register, as floats.
#pragma once

#include <cstdint>

#include "common/cuda/cuda.hpp"
#include "common/types.hpp"

#ifdef __NVCC__

namespace flash {

/// x is the element in bits 0-15, y the one in bits 16-31. T is Half or Bfloat16; the conversion is
/// exact.
template <class T> __device__ __forceinline__ float2 unpack(uint32_t packed) {
    static_assert(dtype_of<T> != DType::fp32, "unpack reads Half or Bfloat16");
    if constexpr (dtype_of<T> == DType::fp16) {
        float2 both;
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, "
            "high;}"
            : "=f"(both.x), "=f"(both.y)
            : "r"(packed));
        return both;
    } else {
        return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u)};
    }
}

} // namespace flash

#else
#include "common/simt/instructions/unpack.hpp"
#endif

namespace flash {

/// The sum of the products of the eight elements of T in a and in b.
template <class T> __device__ inline float dot(uint4 a, uint4 b) {
    const uint32_t a_reg[] = {a.x, a.y, a.z, a.w}, b_reg[] = {b.x, b.y, b.z, b.w};
    float sum = 0;
    for (int c = 0; c < 4; ++c) {
        const float2 a_c = unpack<T>(a_reg[c]), b_c = unpack<T>(b_reg[c]);
        sum = fmaf(a_c.x, b_c.x, fmaf(a_c.y, b_c.y, sum));
    }
    return sum;
}

} // namespace flash
