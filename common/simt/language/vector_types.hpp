// float4 and its kin. A copy is one access of the whole, as on a GPU: left to themselves, compilers
// split it into its elements or call memcpy, and the counts would lie.
#pragma once

#include <cstdint>

#include "common/simt/machine/dim3.hpp"

#ifdef __clang__
#pragma clang diagnostic ignored "-Wmissing-braces"
#endif
#if defined(__clang__) && defined(__x86_64__)
#if __has_feature(thread_sanitizer)
#define FLASH_SIMT_OPAQUE_COPIES
#endif
#endif

namespace flash::simt {

/// A number of so many bytes, which may stand for anything of that size.
template <int Bytes> struct Whole;
template <> struct Whole<2> { typedef uint16_t __attribute__((may_alias)) type; };
template <> struct Whole<4> { typedef uint32_t __attribute__((may_alias)) type; };
template <> struct Whole<8> { typedef uint64_t __attribute__((may_alias)) type; };
template <> struct Whole<16> { typedef uint32_t __attribute__((vector_size(16), may_alias)) type; };

} // namespace flash::simt

#ifdef FLASH_SIMT_OPAQUE_COPIES
namespace flash::simt {

template <class T> inline __attribute__((always_inline)) void copy_whole(T* to, const T* from) {
    using Access = typename Whole<sizeof(T)>::type;
    Access whole = *reinterpret_cast<const Access*>(from);
    asm("" : "+x"(whole)); // no instruction, but clang++ cannot split what it does not see through
    *reinterpret_cast<Access*>(to) = whole;
}

} // namespace flash::simt

// Default construction does nothing, so that a __shared__ array of them needs no initialisation.
#define FLASH_SIMT_COPIED_WHOLE(Vector)                                                            \
    Vector() = default;                                                                            \
    __attribute__((always_inline)) Vector(const Vector& other) {                                   \
        ::flash::simt::copy_whole(this, &other);                                                   \
    }                                                                                              \
    __attribute__((always_inline)) Vector& operator=(const Vector& other) {                        \
        ::flash::simt::copy_whole(this, &other);                                                   \
        return *this;                                                                              \
    }
#define FLASH_SIMT_WHOLE_2(Vector, Scalar)                                                         \
    FLASH_SIMT_COPIED_WHOLE(Vector)                                                                \
    Vector(Scalar x_, Scalar y_ = {}) : x(x_), y(y_) {}
#define FLASH_SIMT_WHOLE_4(Vector, Scalar)                                                         \
    FLASH_SIMT_COPIED_WHOLE(Vector)                                                                \
    Vector(Scalar x_, Scalar y_ = {}, Scalar z_ = {}, Scalar w_ = {})                              \
        : x(x_), y(y_), z(z_), w(w_) {}
#else
#define FLASH_SIMT_COPIED_WHOLE(Vector)
#define FLASH_SIMT_WHOLE_2(Vector, Scalar)
#define FLASH_SIMT_WHOLE_4(Vector, Scalar)
#endif
#define FLASH_SIMT_IN_PARTS(Vector, Scalar)

// g++ copies a structure element by element where it can replace the copy by its elements. It never
// does so with one that has a volatile member; and the type stays what it is in CUDA, an aggregate
// that can be in a union. Nobody touches that member.
#define FLASH_SIMT_UNSPLIT(...)                                                                    \
    __extension__ union {                                                                          \
        __extension__ struct { __VA_ARGS__ };                                                      \
        volatile char unsplit_;                                                                    \
    };

#define FLASH_SIMT_VECTORS_1_3(Scalar, Name)                                                       \
    struct Name##1 {                                                                               \
        Scalar x;                                                                                  \
    };                                                                                             \
    struct Name##3 {                                                                               \
        Scalar x, y, z;                                                                            \
    };                                                                                             \
    inline Name##1 make_##Name##1(Scalar x) { return {x}; }                                        \
    inline Name##3 make_##Name##3(Scalar x, Scalar y, Scalar z) { return {x, y, z}; }

#define FLASH_SIMT_VECTORS_2_4(Scalar, Name, Alignment_4, WHOLE_2, WHOLE_4)                        \
    struct alignas(2 * sizeof(Scalar)) Name##2 {                                                   \
        FLASH_SIMT_UNSPLIT(Scalar x, y;)                                                           \
        WHOLE_2(Name##2, Scalar)                                                                   \
    };                                                                                             \
    inline Name##2 make_##Name##2(Scalar x, Scalar y) { return {x, y}; }                           \
    struct alignas(Alignment_4) Name##4 {                                                          \
        FLASH_SIMT_UNSPLIT(Scalar x, y, z, w;)                                                     \
        WHOLE_4(Name##4, Scalar)                                                                   \
    };                                                                                             \
    inline Name##4 make_##Name##4(Scalar x, Scalar y, Scalar z, Scalar w) { return {x, y, z, w}; }

#define FLASH_SIMT_VECTORS(Scalar, Name, Alignment_4)                                              \
    FLASH_SIMT_VECTORS_1_3(Scalar, Name)                                                           \
    FLASH_SIMT_VECTORS_2_4(Scalar, Name, Alignment_4, FLASH_SIMT_IN_PARTS, FLASH_SIMT_IN_PARTS)

FLASH_SIMT_VECTORS_1_3(float, float)
FLASH_SIMT_VECTORS_1_3(int, int)
FLASH_SIMT_VECTORS_2_4(float, float, 16, FLASH_SIMT_WHOLE_2, FLASH_SIMT_WHOLE_4)
FLASH_SIMT_VECTORS_2_4(int, int, 16, FLASH_SIMT_WHOLE_2, FLASH_SIMT_WHOLE_4)
FLASH_SIMT_VECTORS_2_4(unsigned, uint, 16, FLASH_SIMT_WHOLE_2, FLASH_SIMT_WHOLE_4)
struct uint1 {
    unsigned x;
};
inline uint1 make_uint1(unsigned x) { return {x}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
FLASH_SIMT_VECTORS(signed char, char, 4)
FLASH_SIMT_VECTORS(unsigned char, uchar, 4)
FLASH_SIMT_VECTORS(short, short, 8)
FLASH_SIMT_VECTORS(unsigned short, ushort, 8)
FLASH_SIMT_VECTORS(long, long, 16)
FLASH_SIMT_VECTORS(unsigned long, ulong, 16)
FLASH_SIMT_VECTORS(long long, longlong, 16)
FLASH_SIMT_VECTORS(unsigned long long, ulonglong, 16)
FLASH_SIMT_VECTORS(double, double, 16)

#undef FLASH_SIMT_VECTORS
#undef FLASH_SIMT_VECTORS_1_3
#undef FLASH_SIMT_VECTORS_2_4
#undef FLASH_SIMT_WHOLE_2
#undef FLASH_SIMT_WHOLE_4
#undef FLASH_SIMT_IN_PARTS
