// __half and __nv_bfloat16 with their pairs: cuda_fp16.h and cuda_bf16.h give them these names.
// They are numbers of common/types.hpp. Each operation is computed in fp32 and rounded, which gives
// what one rounding of the exact result would: fp32 has more than twice their digits.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/simt/language/math.hpp"
#include "common/simt/language/vector_types.hpp"
#include "common/types.hpp"

namespace flash::simt {

template <class T> struct Raw { uint16_t x; };
template <class T> struct RawPair { uint16_t x, y; };

/// To fp32, rounded so that a second rounding, to fewer bits, does no harm: what is not exact gets
/// an odd last bit.
inline float to_odd(double x) {
    const auto nearest = static_cast<float>(x);
    if (double{nearest} == x || nearest != nearest || isinf(nearest)) {
        return nearest;
    }
    const uint32_t bits = std::bit_cast<uint32_t>(nearest);
    const bool too_large = fabs(double{nearest}) > fabs(x);
    return std::bit_cast<float>((bits - (too_large ? 1 : 0)) | 1);
}

/// T is Half or Bfloat16.
template <class T> struct Narrow {
    Narrow() = default;
    constexpr Narrow(T value) : bits(value.bits) {}
    constexpr Narrow(Raw<T> value) : bits(value.x) {}
    template <class Number>
    requires std::is_arithmetic_v<Number>
    constexpr Narrow(Number value) : bits(rounded(value)) {}

    /// The bits of a number rounded once.
    template <class Number> static constexpr uint16_t rounded(Number value) {
        if constexpr (std::is_same_v<Number, float>) {
            return from_float<T>(value).bits;
        } else {
            return from_float<T>(to_odd(static_cast<double>(value))).bits;
        }
    }
    static Narrow of_bits(uint16_t bits) { return Narrow(T{bits}); }

    constexpr operator float() const { return to_float(T{bits}); }
    constexpr operator Raw<T>() const { return {bits}; }
    constexpr operator T() const { return {bits}; }

    Narrow operator+() const { return *this; }
    Narrow operator-() const { return of_bits(bits ^ 0x8000); }
    Narrow& operator+=(Narrow other) { return *this = float{*this} + float{other}; }
    Narrow& operator-=(Narrow other) { return *this = float{*this} - float{other}; }
    Narrow& operator*=(Narrow other) { return *this = float{*this} * float{other}; }
    Narrow& operator/=(Narrow other) { return *this = float{*this} / float{other}; }
    Narrow& operator++() { return *this += Narrow(1.0f); }
    Narrow& operator--() { return *this -= Narrow(1.0f); }

    uint16_t bits;
};

/// Two side by side, copied at once.
template <class T> struct alignas(4) Pair {
    FLASH_SIMT_UNSPLIT(Narrow<T> x, y;)
    Pair() = default;
    constexpr Pair(Narrow<T> x_, Narrow<T> y_) : x(x_), y(y_) {}
    constexpr Pair(RawPair<T> raw) : x(Raw<T>{raw.x}), y(Raw<T>{raw.y}) {}
    constexpr operator RawPair<T>() const { return {x.bits, y.bits}; }

    Pair operator-() const { return {-x, -y}; }
    Pair& operator+=(Pair other) { return *this = *this + other; }
    Pair& operator-=(Pair other) { return *this = *this - other; }
    Pair& operator*=(Pair other) { return *this = *this * other; }
    Pair& operator/=(Pair other) { return *this = *this / other; }
};

/// Of both of a pair.
template <class T, class Function> Pair<T> each(Pair<T> a, Function function) {
    return {Narrow<T>(function(a.x)), Narrow<T>(function(a.y))};
}
template <class T, class Function> Pair<T> each(Pair<T> a, Pair<T> b, Function function) {
    return {Narrow<T>(function(a.x, b.x)), Narrow<T>(function(a.y, b.y))};
}

#define FLASH_SIMT_OPERATOR(symbol)                                                                \
    template <class T> inline Narrow<T> operator symbol(Narrow<T> a, Narrow<T> b) {                \
        return float{a} symbol float{b};                                                           \
    }                                                                                              \
    template <class T> inline Pair<T> operator symbol(Pair<T> a, Pair<T> b) {                      \
        return {a.x symbol b.x, a.y symbol b.y};                                                   \
    }
FLASH_SIMT_OPERATOR(+)
FLASH_SIMT_OPERATOR(-)
FLASH_SIMT_OPERATOR(*)
FLASH_SIMT_OPERATOR(/)
#undef FLASH_SIMT_OPERATOR

#define FLASH_SIMT_OPERATOR(symbol)                                                                \
    template <class T> inline bool operator symbol(Narrow<T> a, Narrow<T> b) {                     \
        return float{a} symbol float{b};                                                           \
    }                                                                                              \
    template <class T> inline bool operator symbol(Pair<T> a, Pair<T> b) {                         \
        return a.x symbol b.x && a.y symbol b.y;                                                   \
    }
FLASH_SIMT_OPERATOR(==)
FLASH_SIMT_OPERATOR(!=)
FLASH_SIMT_OPERATOR(<)
FLASH_SIMT_OPERATOR(<=)
FLASH_SIMT_OPERATOR(>)
FLASH_SIMT_OPERATOR(>=)
#undef FLASH_SIMT_OPERATOR

template <class T> inline Narrow<T> saturated_to_1(Narrow<T> x) { return __saturatef(float{x}); }
template <class T> inline Narrow<T> multiply_add(Narrow<T> a, Narrow<T> b, Narrow<T> c) {
    return fma(double{float{a}}, double{float{b}}, double{float{c}});
}

} // namespace flash::simt

// __hadd and __hadd2, and with them what the operators cannot say.
#define FLASH_SIMT_OF_TWO(name, name_2, expression)                                                \
    template <class T>                                                                             \
    inline flash::simt::Narrow<T> name(flash::simt::Narrow<T> a, flash::simt::Narrow<T> b) {       \
        return expression;                                                                         \
    }                                                                                              \
    template <class T>                                                                             \
    inline flash::simt::Pair<T> name_2(flash::simt::Pair<T> a, flash::simt::Pair<T> b) {           \
        return flash::simt::each(a, b, [](auto x, auto y) { return name(x, y); });                 \
    }
FLASH_SIMT_OF_TWO(__hadd, __hadd2, a + b)
FLASH_SIMT_OF_TWO(__hsub, __hsub2, a - b)
FLASH_SIMT_OF_TWO(__hmul, __hmul2, a* b)
FLASH_SIMT_OF_TWO(__hdiv, __h2div, a / b)
FLASH_SIMT_OF_TWO(__hadd_rn, __hadd2_rn, a + b)
FLASH_SIMT_OF_TWO(__hsub_rn, __hsub2_rn, a - b)
FLASH_SIMT_OF_TWO(__hmul_rn, __hmul2_rn, a* b)
FLASH_SIMT_OF_TWO(__hadd_sat, __hadd2_sat, flash::simt::saturated_to_1(a + b))
FLASH_SIMT_OF_TWO(__hsub_sat, __hsub2_sat, flash::simt::saturated_to_1(a - b))
FLASH_SIMT_OF_TWO(__hmul_sat, __hmul2_sat, flash::simt::saturated_to_1(a* b))
FLASH_SIMT_OF_TWO(__hmax, __hmax2, fmaxf(float{a}, float{b}))
FLASH_SIMT_OF_TWO(__hmin, __hmin2, fminf(float{a}, float{b}))
FLASH_SIMT_OF_TWO(__hmax_nan, __hmax2_nan, a != a ? a : b != b ? b : a < b ? b : a)
FLASH_SIMT_OF_TWO(__hmin_nan, __hmin2_nan, a != a ? a : b != b ? b : b < a ? b : a)
#undef FLASH_SIMT_OF_TWO

#define FLASH_SIMT_COMPARE(name, symbol)                                                           \
    template <class T> inline bool __h##name(flash::simt::Narrow<T> a, flash::simt::Narrow<T> b) { \
        return a symbol b;                                                                         \
    }                                                                                              \
    template <class T> inline bool __hb##name##2(flash::simt::Pair<T> a, flash::simt::Pair<T> b) { \
        return a symbol b;                                                                         \
    }                                                                                              \
    template <class T>                                                                             \
    inline flash::simt::Pair<T> __h##name##2(flash::simt::Pair<T> a, flash::simt::Pair<T> b) {     \
        return flash::simt::each(a, b, [](auto x, auto y) { return x symbol y ? 1.0f : 0.0f; });   \
    }
FLASH_SIMT_COMPARE(eq, ==)
FLASH_SIMT_COMPARE(ne, !=)
FLASH_SIMT_COMPARE(lt, <)
FLASH_SIMT_COMPARE(le, <=)
FLASH_SIMT_COMPARE(gt, >)
FLASH_SIMT_COMPARE(ge, >=)
#undef FLASH_SIMT_COMPARE

#define FLASH_SIMT_OF_ONE(name, name_2, expression)                                                \
    template <class T> inline flash::simt::Narrow<T> name(flash::simt::Narrow<T> a) {              \
        const float x = a;                                                                         \
        return expression;                                                                         \
    }                                                                                              \
    template <class T> inline flash::simt::Pair<T> name_2(flash::simt::Pair<T> a) {                \
        return flash::simt::each(a, [](auto x) { return name(x); });                               \
    }
FLASH_SIMT_OF_ONE(__hneg, __hneg2, -x)
FLASH_SIMT_OF_ONE(__habs, __habs2, fabsf(x))
FLASH_SIMT_OF_ONE(hsqrt, h2sqrt, sqrtf(x))
FLASH_SIMT_OF_ONE(hrsqrt, h2rsqrt, rsqrtf(x))
FLASH_SIMT_OF_ONE(hrcp, h2rcp, 1.0f / x)
FLASH_SIMT_OF_ONE(hexp, h2exp, expf(x))
FLASH_SIMT_OF_ONE(hexp2, h2exp2, exp2f(x))
FLASH_SIMT_OF_ONE(hexp10, h2exp10, exp10f(x))
FLASH_SIMT_OF_ONE(hlog, h2log, logf(x))
FLASH_SIMT_OF_ONE(hlog2, h2log2, log2f(x))
FLASH_SIMT_OF_ONE(hlog10, h2log10, log10f(x))
FLASH_SIMT_OF_ONE(hsin, h2sin, sinf(x))
FLASH_SIMT_OF_ONE(hcos, h2cos, cosf(x))
FLASH_SIMT_OF_ONE(htanh, h2tanh, tanhf(x))
FLASH_SIMT_OF_ONE(htanh_approx, h2tanh_approx, tanhf(x))
FLASH_SIMT_OF_ONE(hceil, h2ceil, ceilf(x))
FLASH_SIMT_OF_ONE(hfloor, h2floor, floorf(x))
FLASH_SIMT_OF_ONE(htrunc, h2trunc, truncf(x))
FLASH_SIMT_OF_ONE(hrint, h2rint, nearbyintf(x))
#undef FLASH_SIMT_OF_ONE

template <class T>
inline flash::simt::Narrow<T> __hfma(flash::simt::Narrow<T> a, flash::simt::Narrow<T> b,
                                     flash::simt::Narrow<T> c) {
    return flash::simt::multiply_add(a, b, c);
}
template <class T>
inline flash::simt::Narrow<T> __hfma_relu(flash::simt::Narrow<T> a, flash::simt::Narrow<T> b,
                                          flash::simt::Narrow<T> c) {
    return __hmax(flash::simt::multiply_add(a, b, c), flash::simt::Narrow<T>(0.0f));
}
template <class T>
inline flash::simt::Narrow<T> __hfma_sat(flash::simt::Narrow<T> a, flash::simt::Narrow<T> b,
                                         flash::simt::Narrow<T> c) {
    return flash::simt::saturated_to_1(flash::simt::multiply_add(a, b, c));
}
template <class T>
inline flash::simt::Pair<T> __hfma2(flash::simt::Pair<T> a, flash::simt::Pair<T> b,
                                    flash::simt::Pair<T> c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class T> inline bool __hisnan(flash::simt::Narrow<T> a) { return a != a; }
template <class T> inline int __hisinf(flash::simt::Narrow<T> a) {
    const float x = a;
    return x == INFINITY ? 1 : x == -INFINITY ? -1 : 0;
}

template <class T> inline float __low2float(flash::simt::Pair<T> a) { return a.x; }
template <class T> inline float __high2float(flash::simt::Pair<T> a) { return a.y; }
template <class T> inline flash::simt::Pair<T> __lowhigh2highlow(flash::simt::Pair<T> a) {
    return {a.y, a.x};
}

namespace flash::simt {

/// The neighbour of `nearest` on the side of x that `direction` asks for, if that is not where it
/// lies: -1 down, 1 up, 0 towards zero.
template <class T> Narrow<T> towards(int direction, float x) {
    const Narrow<T> nearest = x;
    const int wanted = direction != 0 ? direction : (x > 0 ? -1 : 1);
    const float distance = float{nearest} - x;
    if (distance == 0 || x != x || isinf(x) || (distance > 0) == (wanted > 0)) {
        return nearest;
    }
    if ((nearest.bits & 0x7fff) == 0) { // the smallest number there is
        return Narrow<T>::of_bits(wanted > 0 ? 0x0001 : 0x8001);
    }
    const bool outwards = (float{nearest} > 0) == (wanted > 0);
    return Narrow<T>::of_bits(static_cast<uint16_t>(nearest.bits + (outwards ? 1 : -1)));
}

} // namespace flash::simt

// The names that say the type: `half` and `half2`, or `bfloat16` and `bfloat162`.
#define FLASH_SIMT_NARROW_NAMES(T, one, two)                                                       \
    inline flash::simt::Narrow<T> __float2##one(float x) { return x; }                             \
    inline flash::simt::Narrow<T> __float2##one##_rn(float x) { return x; }                        \
    inline flash::simt::Narrow<T> __float2##one##_rz(float x) {                                    \
        return flash::simt::towards<T>(0, x);                                                      \
    }                                                                                              \
    inline flash::simt::Narrow<T> __float2##one##_rd(float x) {                                    \
        return flash::simt::towards<T>(-1, x);                                                     \
    }                                                                                              \
    inline flash::simt::Narrow<T> __float2##one##_ru(float x) {                                    \
        return flash::simt::towards<T>(1, x);                                                      \
    }                                                                                              \
    inline flash::simt::Narrow<T> __double2##one(double x) { return x; }                           \
    inline float __##one##2float(flash::simt::Narrow<T> x) { return x; }                           \
    FLASH_SIMT_NARROW_INTEGER(T, one, int, int)                                                    \
    FLASH_SIMT_NARROW_INTEGER(T, one, unsigned, uint)                                              \
    FLASH_SIMT_NARROW_INTEGER(T, one, short, short)                                                \
    FLASH_SIMT_NARROW_INTEGER(T, one, unsigned short, ushort)                                      \
    FLASH_SIMT_NARROW_INTEGER(T, one, long long, ll)                                               \
    FLASH_SIMT_NARROW_INTEGER(T, one, unsigned long long, ull)                                     \
    inline unsigned short __##one##_as_ushort(flash::simt::Narrow<T> x) { return x.bits; }         \
    inline short __##one##_as_short(flash::simt::Narrow<T> x) {                                    \
        return static_cast<short>(x.bits);                                                         \
    }                                                                                              \
    inline flash::simt::Narrow<T> __ushort_as_##one(unsigned short x) { return T{x}; }             \
    inline flash::simt::Narrow<T> __short_as_##one(short x) {                                      \
        return T{static_cast<uint16_t>(x)};                                                        \
    }                                                                                              \
    inline flash::simt::Pair<T> __float2##two##_rn(float x) { return {x, x}; }                     \
    inline flash::simt::Pair<T> __floats2##two##_rn(float x, float y) { return {x, y}; }           \
    inline flash::simt::Pair<T> __float22##two##_rn(float2 v) { return {v.x, v.y}; }               \
    inline float2 __##two##2float2(flash::simt::Pair<T> v) { return make_float2(v.x, v.y); }       \
    inline flash::simt::Pair<T> __##one##2##two(flash::simt::Narrow<T> x) { return {x, x}; }       \
    inline flash::simt::Pair<T> __halves2##two(flash::simt::Narrow<T> x,                           \
                                               flash::simt::Narrow<T> y) {                         \
        return {x, y};                                                                             \
    }                                                                                              \
    inline flash::simt::Pair<T> make_##two(flash::simt::Narrow<T> x, flash::simt::Narrow<T> y) {   \
        return {x, y};                                                                             \
    }                                                                                              \
    inline flash::simt::Narrow<T> __low2##one(flash::simt::Pair<T> v) { return v.x; }              \
    inline flash::simt::Narrow<T> __high2##one(flash::simt::Pair<T> v) { return v.y; }             \
    inline flash::simt::Pair<T> __low2##two(flash::simt::Pair<T> v) { return {v.x, v.x}; }         \
    inline flash::simt::Pair<T> __high2##two(flash::simt::Pair<T> v) { return {v.y, v.y}; }        \
    inline flash::simt::Pair<T> __lows2##two(flash::simt::Pair<T> v, flash::simt::Pair<T> w) {     \
        return {v.x, w.x};                                                                         \
    }                                                                                              \
    inline flash::simt::Pair<T> __highs2##two(flash::simt::Pair<T> v, flash::simt::Pair<T> w) {    \
        return {v.y, w.y};                                                                         \
    }

#define FLASH_SIMT_NARROW_INTEGER(T, one, Integer, integer)                                        \
    inline flash::simt::Narrow<T> __##integer##2##one##_rn(Integer x) { return x; }                \
    inline Integer __##one##2##integer##_rn(flash::simt::Narrow<T> x) {                            \
        return flash::simt::saturated<Integer>(nearbyint(double{float{x}}));                       \
    }                                                                                              \
    inline Integer __##one##2##integer##_rz(flash::simt::Narrow<T> x) {                            \
        return flash::simt::saturated<Integer>(trunc(double{float{x}}));                           \
    }                                                                                              \
    inline Integer __##one##2##integer##_ru(flash::simt::Narrow<T> x) {                            \
        return flash::simt::saturated<Integer>(ceil(double{float{x}}));                            \
    }                                                                                              \
    inline Integer __##one##2##integer##_rd(flash::simt::Narrow<T> x) {                            \
        return flash::simt::saturated<Integer>(floor(double{float{x}}));                           \
    }
