// CUDA's arithmetic functions beside those of C++ and of intrinsics.hpp. What a GPU computes in
// fewer bits (__sinf, __powf) is exact here: a kernel must bear both.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <limits>

#include "common/simt/language/intrinsics.hpp"

// glibc declares functions of some of these names itself, so they must be macros.
#define __sinf(x) (::sinf(x))
#define __cosf(x) (::cosf(x))
#define __tanf(x) (::tanf(x))
#define __exp10f(x) (::exp10f(x))
#define __log10f(x) (::log10f(x))
#define __powf(x, y) (::powf(x, y))
#define __sincosf(x, sine, cosine) (::sincosf(x, sine, cosine))
// a promise to the compiler, of which g++ makes no use
#define __builtin_assume(condition) static_cast<void>(0)

inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
inline float norm4df(float x, float y, float z, float w) {
    return sqrtf(x * x + y * y + z * z + w * w);
}
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * fmod(x, 2.0))); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * fmod(x, 2.0))); }
inline double sinpi(double x) { return sin(M_PI * fmod(x, 2.0)); }
inline double cospi(double x) { return cos(M_PI * fmod(x, 2.0)); }
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = sinpif(x);
    *cosine = cospif(x);
}
inline float normcdff(float x) { return 0.5f * erfcf(-x * static_cast<float>(M_SQRT1_2)); }
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
inline float saturate(float x) { return __saturatef(x); }

inline unsigned umin(unsigned x, unsigned y) { return y < x ? y : x; }
inline unsigned umax(unsigned x, unsigned y) { return x < y ? y : x; }
inline long long llmin(long long x, long long y) { return y < x ? y : x; }
inline long long llmax(long long x, long long y) { return x < y ? y : x; }
inline unsigned long long ullmin(unsigned long long x, unsigned long long y) {
    return y < x ? y : x;
}
inline unsigned long long ullmax(unsigned long long x, unsigned long long y) {
    return x < y ? y : x;
}

// Rounded to nearest, as C++ rounds.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(double{x})); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 |
                                 static_cast<uint32_t>(low));
}

namespace flash::simt {

/// An integer of a whole number; one too large is the largest there is, NaN is zero.
template <class Integer> Integer saturated(double whole) {
    using Limits = std::numeric_limits<Integer>;
    if (!(whole > static_cast<double>(Limits::min()))) {
        return whole != whole ? Integer{0} : Limits::min();
    }
    // the first number that is too large is a power of two
    return whole >= 2.0 * static_cast<double>(Limits::max() / 2 + 1) ? Limits::max()
                                                                     : static_cast<Integer>(whole);
}

} // namespace flash::simt

// __float2int_rn and so on: to nearest, towards zero, up, down.
#define FLASH_SIMT_CONVERSIONS(Real, real, Integer, integer)                                       \
    inline Integer __##real##2##integer##_rn(Real x) {                                             \
        return flash::simt::saturated<Integer>(nearbyint(double{x}));                              \
    }                                                                                              \
    inline Integer __##real##2##integer##_rz(Real x) {                                             \
        return flash::simt::saturated<Integer>(trunc(double{x}));                                  \
    }                                                                                              \
    inline Integer __##real##2##integer##_ru(Real x) {                                             \
        return flash::simt::saturated<Integer>(ceil(double{x}));                                   \
    }                                                                                              \
    inline Integer __##real##2##integer##_rd(Real x) {                                             \
        return flash::simt::saturated<Integer>(floor(double{x}));                                  \
    }                                                                                              \
    inline Real __##integer##2##real##_rn(Integer x) { return static_cast<Real>(x); }

FLASH_SIMT_CONVERSIONS(float, float, int, int)
FLASH_SIMT_CONVERSIONS(float, float, unsigned, uint)
FLASH_SIMT_CONVERSIONS(float, float, long long, ll)
FLASH_SIMT_CONVERSIONS(float, float, unsigned long long, ull)
FLASH_SIMT_CONVERSIONS(double, double, int, int)
FLASH_SIMT_CONVERSIONS(double, double, unsigned, uint)
FLASH_SIMT_CONVERSIONS(double, double, long long, ll)
FLASH_SIMT_CONVERSIONS(double, double, unsigned long long, ull)
#undef FLASH_SIMT_CONVERSIONS
inline float __double2float_rn(double x) { return static_cast<float>(x); }
