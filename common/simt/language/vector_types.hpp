// float4 and its kin. A copy is one access of the whole, as on a GPU: left to themselves, compilers
// split it into its elements or call memcpy, and the counts would lie.
#pragma once

#include <cstdint>

#if defined(__clang__) && defined(__x86_64__)
#if __has_feature(thread_sanitizer)
#define FLASH_SIMT_OPAQUE_COPIES
#endif
#endif

namespace flash::simt {

template <int Bytes> struct Whole;
template <> struct Whole<4> { typedef uint32_t __attribute__((may_alias)) type; };
template <> struct Whole<8> { typedef uint64_t __attribute__((may_alias)) type; };
template <> struct Whole<16> { typedef uint32_t __attribute__((vector_size(16), may_alias)) type; };

template <class T> inline __attribute__((always_inline)) void copy_whole(T* to, const T* from) {
    using Access = typename Whole<sizeof(T)>::type;
#ifdef FLASH_SIMT_OPAQUE_COPIES
    Access whole = *reinterpret_cast<const Access*>(from);
    asm("" : "+x"(whole)); // no instruction, but clang++ cannot split what it does not see through
    *reinterpret_cast<Access*>(to) = whole;
#else
    *reinterpret_cast<Access*>(to) = *reinterpret_cast<const Access*>(from);
#endif
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

#define FLASH_SIMT_VECTORS(Scalar, Name)                                                           \
    struct alignas(2 * sizeof(Scalar)) Name##2 {                                                   \
        Scalar x, y;                                                                               \
        FLASH_SIMT_COPIED_WHOLE(Name##2)                                                           \
        Name##2(Scalar x_, Scalar y_) : x(x_), y(y_) {}                                            \
    };                                                                                             \
    inline Name##2 make_##Name##2(Scalar x, Scalar y) { return {x, y}; }                           \
    struct alignas(4 * sizeof(Scalar)) Name##4 {                                                   \
        Scalar x, y, z, w;                                                                         \
        FLASH_SIMT_COPIED_WHOLE(Name##4)                                                           \
        Name##4(Scalar x_, Scalar y_, Scalar z_, Scalar w_) : x(x_), y(y_), z(z_), w(w_) {}        \
    };                                                                                             \
    inline Name##4 make_##Name##4(Scalar x, Scalar y, Scalar z, Scalar w) { return {x, y, z, w}; }

FLASH_SIMT_VECTORS(float, float)
FLASH_SIMT_VECTORS(int, int)
FLASH_SIMT_VECTORS(unsigned, uint)

#undef FLASH_SIMT_VECTORS
#undef FLASH_SIMT_COPIED_WHOLE
#undef FLASH_SIMT_OPAQUE_COPIES
