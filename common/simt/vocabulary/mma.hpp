// Twin of the mma.sync wrappers in common/cuda/mma.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/simt/machine/site.hpp"
#include "common/types.hpp"

namespace flash {
namespace simt {

void mma_m16n8k16(DType type, float* c, const uint32_t* a, const uint32_t* b, Site site);

} // namespace simt

/// C += A B with A 16 x 16, B 16 x 8 of T (Half or Bfloat16), C 16 x 8 in fp32, spread over the lanes of a warp.
/// Lane l, with g = l / 4 and t = l % 4, holds two elements per register, the lower one in the lower bits:
///   a[0] = A[g    ][2t, 2t+1]    a[2] = A[g    ][2t+8, 2t+9]    b[0] = B[2t,   2t+1][g]
///   a[1] = A[g + 8][2t, 2t+1]    a[3] = A[g + 8][2t+8, 2t+9]    b[1] = B[2t+8, 2t+9][g]
///   c[0], c[1] = C[g][2t], C[g][2t+1]    c[2], c[3] = C[g + 8][2t], C[g + 8][2t+1]
template <class T>
inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         simt::Site site = simt::Site::here()) {
    static_assert(dtype_of<T> != DType::fp32, "mma.sync m16n8k16 takes Half or Bfloat16");
    simt::mma_m16n8k16(dtype_of<T>, c, a, b, site);
}

/// Two floats, rounded to T, in one register: `low` in bits 0-15, `high` in bits 16-31.
template <class T> inline uint32_t pack(float low, float high) {
    return from_float<T>(low).bits | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

/// As pack, but what is too large for fp16 becomes its largest number, 65504, in place of infinity.
template <class T> inline uint32_t pack_saturated(float low, float high) {
    constexpr float most = dtype_of<T> == DType::fp16 ? 65504.0f : INFINITY;
    const auto clamped = [](float x) { return x > most ? most : x < -most ? -most : x; }; // NaN stays
    return pack<T>(clamped(low), clamped(high));
}

} // namespace flash
