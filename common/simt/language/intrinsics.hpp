// CUDA's scalar functions that C++ does not have. The fast ones are exact here: a kernel must bear
// both.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <type_traits>

// glibc declares functions of some of these names itself, so they must be macros.
#define __expf(x) (::expf(x))
#define __logf(x) (::logf(x))
#define __log2f(x) (::log2f(x))

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

template <class T> inline __attribute__((always_inline)) T __ldg(const T* address) {
    return *address;
}

// Any two arithmetic types, as CUDA has it; C++'s own take two of one type.
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    return static_cast<std::common_type_t<A, B>>(b) < static_cast<std::common_type_t<A, B>>(a) ? b
                                                                                               : a;
}
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    return static_cast<std::common_type_t<A, B>>(a) < static_cast<std::common_type_t<A, B>>(b) ? b
                                                                                               : a;
}

/// The largest of three: one instruction on Hopper.
inline int __vimax3_s32(int a, int b, int c) { return max(a, max(b, c)); }
