// Element types: fp32, fp16, bf16 and e4m3, with conversions that round to nearest, ties to even.
// Written here rather than taken from cuda_fp16.h so that no CUDA toolkit is needed to build
// anything.
#pragma once

#include <bit>
#include <cstdint>

namespace flash {

/// IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits. Largest finite value 65504.
struct Half {
    uint16_t bits;
};

/// bfloat16: the upper half of a float. 1 sign, 8 exponent, 7 mantissa bits.
struct Bfloat16 {
    uint16_t bits;
};

/// 8 bits: 1 sign, 4 exponent, 3 mantissa bits. Largest finite value 448, smallest 2^-9; there is
/// no infinity.
struct E4m3 {
    uint8_t bits;
};

enum class DType { fp32, fp16, bf16, e4m3 };

constexpr const char* dtype_name(DType t) {
    return t == DType::fp32   ? "fp32"
           : t == DType::fp16 ? "fp16"
           : t == DType::bf16 ? "bf16"
                              : "e4m3";
}
constexpr int dtype_bytes(DType t) { return t == DType::fp32 ? 4 : t == DType::e4m3 ? 1 : 2; }

/// The type of O, which is that of Q, K and V but for e4m3.
constexpr DType output_type(DType t) { return t == DType::e4m3 ? DType::bf16 : t; }

template <class T> inline constexpr DType dtype_of = DType::fp32;
template <> inline constexpr DType dtype_of<Half> = DType::fp16;
template <> inline constexpr DType dtype_of<Bfloat16> = DType::bf16;
template <> inline constexpr DType dtype_of<E4m3> = DType::e4m3;

constexpr float to_float(float x) { return x; }

constexpr float to_float(Bfloat16 x) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

/// Without branches, so that loops over it become vectors.
constexpr float to_float(Half x) {
    const uint32_t sign = (x.bits & 0x8000u) << 16;
    // as a float 2^112 too small: 112 = 127 - 15, the two biases
    const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
    // exact
    const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    return std::bit_cast<float>(sign |
                                (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

constexpr float to_float(E4m3 x) {
    const uint32_t sign = (x.bits & 0x80u) << 24;
    const uint32_t magnitude = x.bits & 0x7fu;
    // as a float 2^120 too small: 120 = 127 - 7, the two biases
    const float finite = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
    return std::bit_cast<float>(
        sign | (magnitude == 0x7fu ? 0x7fc00000u : std::bit_cast<uint32_t>(finite)));
}

/// Rounds x to T. Overflow gives infinity, or NaN where T has none; NaN stays NaN.
template <class T> constexpr T from_float(float x);

template <> constexpr float from_float<float>(float x) { return x; }

template <> constexpr Bfloat16 from_float<Bfloat16>(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    // NaN: keep it quiet, never let the carry turn it into infinity
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return {static_cast<uint16_t>(u >> 16 | 0x40u)};
    }
    const uint32_t half_ulp_or_less = 0x7fffu + (u >> 16 & 1u); // ties go to the even mantissa
    return {static_cast<uint16_t>((u + half_ulp_or_less) >> 16)};
}

template <> constexpr Half from_float<Half>(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = u >> 16 & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return {static_cast<uint16_t>(sign | 0x7e00u)};
    }
    if (magnitude >= 0x477ff000u) { // 65520 and above round to infinity
        return {static_cast<uint16_t>(sign | 0x7c00u)};
    }
    // below 2^-14: subnormal; adding 0.5 leaves x in units of 2^-24, rounded
    if (magnitude < 0x38800000u) {
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
    }
    const uint32_t half_ulp_or_less = 0xfffu + (magnitude >> 13 & 1u);
    return {static_cast<uint16_t>(sign | (magnitude + half_ulp_or_less - (112u << 23)) >> 13)};
}

template <> constexpr E4m3 from_float<E4m3>(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = u >> 24 & 0x80u;
    const uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x43e80000u) { // above 464 nothing rounds to 448 any more; NaN
        return {static_cast<uint8_t>(sign | 0x7fu)};
    }
    // below 2^-6: subnormal; adding 2^14 leaves x in units of 2^-9, rounded
    if (magnitude < 0x3c800000u) {
        const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
        return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u))};
    }
    const uint32_t half_ulp_or_less = 0x7ffffu + (magnitude >> 20 & 1u);
    return {static_cast<uint8_t>(sign | (magnitude + half_ulp_or_less - (120u << 23)) >> 20)};
}

/// The largest finite number of `type`.
constexpr float largest_number(DType type) {
    return type == DType::fp16   ? 65504.0f
           : type == DType::bf16 ? 0x1.fep127f
           : type == DType::e4m3 ? 448.0f
                                 : 0x1.fffffep127f;
}

/// x as the nearest value of `type`, held in a float.
constexpr float round_to(DType type, float x) {
    return type == DType::fp32   ? x
           : type == DType::fp16 ? to_float(from_float<Half>(x))
           : type == DType::bf16 ? to_float(from_float<Bfloat16>(x))
                                 : to_float(from_float<E4m3>(x));
}

} // namespace flash
