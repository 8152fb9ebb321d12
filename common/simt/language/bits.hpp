// CUDA's functions of integers and bits beside those of intrinsics.hpp, and loads and stores with a
// hint to the caches, which there are none of here.
#pragma once

#include <bit>
#include <cstdint>

#include "common/simt/language/intrinsics.hpp"
#include "common/simt/language/vector_types.hpp"

inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffsll(long long x) {
    return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long reversed = 0;
    for (int bit = 0; bit < 64; ++bit) {
        reversed |= (x >> bit & 1) << (63 - bit);
    }
    return reversed;
}
inline unsigned __brev(unsigned x) { return static_cast<unsigned>(__brevll(x) >> 32); }

/// Four of the eight bytes of y:x, each chosen by four bits; the highest of the four spreads the
/// byte's sign over it.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned choice) {
    const uint64_t bytes = uint64_t{y} << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned chosen = choice >> 4 * i & 0xf;
        const auto byte = static_cast<unsigned>(bytes >> 8 * (chosen & 7) & 0xff);
        const unsigned sign = (byte & 0x80) != 0 ? 0xff : 0;
        result |= ((chosen & 8) != 0 ? sign : byte) << 8 * i;
    }
    return result;
}

/// Of the 64 bits high:low, 32 after a shift; _lc and _rc shift by 32 at most.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

inline int __mul24(int x, int y) {
    const auto low_24 = [](int z) {
        return int64_t{static_cast<int>(static_cast<unsigned>(z) << 8) >> 8};
    };
    return static_cast<int>(low_24(x) * low_24(y));
}
inline unsigned __umul24(unsigned x, unsigned y) {
    return static_cast<unsigned>(uint64_t{x & 0xffffff} * (y & 0xffffff));
}
inline int __mulhi(int x, int y) { return static_cast<int>(int64_t{x} * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
    __extension__ using Product = __int128;
    return static_cast<long long>(Product{x} * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    __extension__ using Product = unsigned __int128;
    return static_cast<unsigned long long>(Product{x} * y >> 64);
}

inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
inline unsigned __sad(int x, int y, unsigned z) {
    const int64_t distance = int64_t{x} - y;
    return static_cast<unsigned>(distance < 0 ? -distance : distance) + z;
}
inline int __hadd(int x, int y) { return static_cast<int>((int64_t{x} + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((int64_t{x} + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((uint64_t{x} + y) >> 1);
}
inline unsigned __urhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((uint64_t{x} + y + 1) >> 1);
}

namespace flash::simt {

/// c and the products of four bytes with four others.
template <class Byte> inline unsigned dot_4(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) {
        const int product = int{static_cast<Byte>(a >> 8 * i)} * int{static_cast<Byte>(b >> 8 * i)};
        c += static_cast<unsigned>(product);
    }
    return c;
}

} // namespace flash::simt

inline int __dp4a(int a, int b, int c) {
    return static_cast<int>(flash::simt::dot_4<int8_t>(
        static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c)));
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    return flash::simt::dot_4<uint8_t>(a, b, c);
}
inline int __dp4a(char4 a, char4 b, int c) {
    return __dp4a(std::bit_cast<int>(a), std::bit_cast<int>(b), c);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return __dp4a(std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b), c);
}

#define FLASH_SIMT_HINTED_LOAD(name)                                                               \
    template <class T> inline __attribute__((always_inline)) T name(const T* address) {            \
        return *address;                                                                           \
    }
#define FLASH_SIMT_HINTED_STORE(name)                                                              \
    template <class T>                                                                             \
    inline __attribute__((always_inline)) void name(T* address, std::type_identity_t<T> value) {   \
        *address = value;                                                                          \
    }
FLASH_SIMT_HINTED_LOAD(__ldca)
FLASH_SIMT_HINTED_LOAD(__ldcg)
FLASH_SIMT_HINTED_LOAD(__ldcs)
FLASH_SIMT_HINTED_LOAD(__ldlu)
FLASH_SIMT_HINTED_LOAD(__ldcv)
FLASH_SIMT_HINTED_STORE(__stwb)
FLASH_SIMT_HINTED_STORE(__stcg)
FLASH_SIMT_HINTED_STORE(__stcs)
FLASH_SIMT_HINTED_STORE(__stwt)
#undef FLASH_SIMT_HINTED_LOAD
#undef FLASH_SIMT_HINTED_STORE
