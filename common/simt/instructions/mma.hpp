// Twin of common/cuda/ptx/mma.hpp, which says how fragments lie in the lanes.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/simt/machine/source_location.hpp"
#include "common/types.hpp"

namespace flash {
namespace simt {

void mma_m16n8k16(DType type, float* c, const uint32_t* a, const uint32_t* b,
                  SourceLocation location);

} // namespace simt

template <class T>
inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         simt::SourceLocation location = simt::SourceLocation::here()) {
    static_assert(dtype_of<T> != DType::fp32, "mma.sync m16n8k16 takes Half or Bfloat16");
    simt::mma_m16n8k16(dtype_of<T>, c, a, b, location);
}

template <class T> inline uint32_t pack(float low, float high) {
    return from_float<T>(low).bits | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

template <class T> inline uint32_t pack_saturated(float low, float high) {
    constexpr float most = dtype_of<T> == DType::fp16 ? 65504.0f : INFINITY;
    // NaN stays
    const auto clamped = [](float x) { return x > most ? most : x < -most ? -most : x; };
    return pack<T>(clamped(low), clamped(high));
}

} // namespace flash
