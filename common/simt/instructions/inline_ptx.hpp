// What scripts/simt makes of inline PTX: a call for each instruction that has a twin. Operands come
// one by one, results first, as they stand in the instruction.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/simt/instructions/atomics.hpp"
#include "common/simt/instructions/collectives.hpp"
#include "common/simt/instructions/cp_async.hpp"
#include "common/simt/instructions/exp2.hpp"
#include "common/simt/instructions/ldmatrix.hpp"
#include "common/simt/instructions/mbarrier.hpp"
#include "common/simt/instructions/mma.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/instructions/warpgroup.hpp"
#include "common/simt/instructions/wgmma.hpp"
#include "common/simt/language/keywords.hpp"
#include "common/simt/language/shared_addresses.hpp"
#include "common/simt/language/vector_types.hpp"

namespace flash::simt::ptx {

/// A register's bits as another type of its size.
template <class To, class From> __forceinline__ To bits(From from) {
    static_assert(sizeof(To) == sizeof(From),
                  "inline PTX with an operand of another size than its instruction's");
    return __builtin_bit_cast(To, from);
}
/// What a register and memory exchange: a register may be wider, unless it holds a float.
template <class To, class From> __forceinline__ To extended(From from) {
    if constexpr (sizeof(To) != sizeof(From) && std::is_integral_v<To> &&
                  std::is_integral_v<From>) {
        return static_cast<To>(from);
    } else {
        return bits<To>(from);
    }
}

/// Takes the place of a result that nobody wants.
struct Sink {};
/// Writes a result.
template <class Register, class Value> __forceinline__ void set(Register&& to, Value value) {
    using To = std::remove_cvref_t<Register>;
    if constexpr (!std::is_same_v<To, Sink>) {
        to = bits<To>(value);
    }
}
template <class T, size_t count, class... Results>
__forceinline__ void set_each(const T (&values)[count], Results&&... results) {
    static_assert(sizeof...(Results) == count);
    size_t i = 0;
    (set(results, values[i++]), ...);
}

/// mov of several registers into one that is as wide as all of them. The first is its lowest bits.
template <class All, class Part, class... Parts>
__forceinline__ All pack(Part first, Parts... more) {
    static_assert(sizeof(All) == (sizeof(Part) + ... + sizeof(Parts)));
    All all = first;
    int shift = 0;
    ((all |= static_cast<All>(more) << (shift += 8 * sizeof(Part))), ...);
    return all;
}
/// The way back.
template <class Part, class All, class... Results>
__forceinline__ void unpack(All all, Results&&... results) {
    static_assert(sizeof(All) == sizeof(Part) * sizeof...(Results));
    int shift = -8 * static_cast<int>(sizeof(Part));
    (set(results, static_cast<Part>(all >> (shift += 8 * sizeof(Part)))), ...);
}

/// What .ftz makes of a number: those that are too small for a float of full precision are 0.
inline float flushed(float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

// Integers wrap around, and shifts go as far as one likes.
template <class T> __forceinline__ T wrapped(T a, T b, char operation) {
    using Bits = std::make_unsigned_t<T>;
    const uint64_t x = static_cast<Bits>(a), y = static_cast<Bits>(b);
    return static_cast<T>(operation == '+' ? x + y : operation == '-' ? x - y : x * y);
}
template <class T> __forceinline__ T high_product(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}
template <class T> __forceinline__ auto wide_product(T a, T b) {
    using Narrow = std::conditional_t<std::is_signed_v<T>, int, unsigned>;
    using Wide = std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>;
    using Product = std::conditional_t<sizeof(T) == 2, Narrow, Wide>;
    return static_cast<Product>(a) * static_cast<Product>(b);
}
template <class T> __forceinline__ T shifted_shl(T x, unsigned by) {
    return by < 8 * sizeof(T) ? static_cast<T>(x << by) : T{};
}
template <class T> __forceinline__ T shifted_shr(T x, unsigned by) {
    const T past = std::is_signed_v<T> ? static_cast<T>(x >> (8 * sizeof(T) - 1)) : T{};
    return by < 8 * sizeof(T) ? static_cast<T>(x >> by) : past;
}
/// 32 bits of two registers together, the first of them the lower half.
__forceinline__ unsigned funnel(unsigned low, unsigned high, bool left, unsigned by) {
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned>(left ? both << by >> 32 : both >> by);
}
__forceinline__ unsigned funnel_shf_l_wrap_b32(unsigned low, unsigned high, unsigned by) {
    return funnel(low, high, true, by % 32);
}
__forceinline__ unsigned funnel_shf_r_wrap_b32(unsigned low, unsigned high, unsigned by) {
    return funnel(low, high, false, by % 32);
}
__forceinline__ unsigned funnel_shf_l_clamp_b32(unsigned low, unsigned high, unsigned by) {
    return funnel(low, high, true, std::min(by, 32u));
}
__forceinline__ unsigned funnel_shf_r_clamp_b32(unsigned low, unsigned high, unsigned by) {
    return funnel(low, high, false, std::min(by, 32u));
}
/// bfe: `length` bits from `begin` on. A signed field's highest bit fills what is left, and so does
/// the register's where the field begins or ends behind it.
template <class T> __forceinline__ T field(T x, unsigned begin, unsigned length) {
    constexpr unsigned all = 8 * sizeof(T);
    begin &= 0xff;
    length &= 0xff;
    if (length == 0) {
        return T{};
    }
    using Bits = std::make_unsigned_t<T>;
    const bool is_negative =
        std::is_signed_v<T> && (static_cast<Bits>(x) >> std::min(begin + length - 1, all - 1) & 1);
    T found{};
    for (unsigned i = 0; i < all; ++i) {
        const bool is_inside = i < length && begin + i < all;
        const Bits bit = is_inside ? static_cast<Bits>(x) >> (begin + i) & 1 : Bits{is_negative};
        found = static_cast<T>(found | static_cast<T>(bit << i));
    }
    return found;
}
/// bfi: `from`, with the lowest `length` bits of x from `begin` on.
template <class T> __forceinline__ T with_field(T x, T from, unsigned begin, unsigned length) {
    begin &= 0xff;
    length &= 0xff;
    for (unsigned i = 0; i < length && begin + i < 8 * sizeof(T); ++i) {
        const T bit = T{1} << (begin + i);
        from = (x >> i & 1) != 0 ? from | bit : from & ~bit;
    }
    return from;
}
/// lop3: the bit number 4 a + 2 b + c of a table, for each bit of three registers.
__forceinline__ unsigned of_three(unsigned a, unsigned b, unsigned c, unsigned table) {
    unsigned found = 0;
    for (unsigned i = 0; i < 8; ++i) {
        if ((table >> i & 1) != 0) {
            found |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
        }
    }
    return found;
}
/// What a number that has been rounded is as an integer: the nearest there is, of NaN 0.
template <class To, class From> __forceinline__ To to_integer(From x) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(x)) {
        return To{};
    }
    // 2^bits is a number, and the largest integer may be none
    if (x >= std::ldexp(From{1}, Limits::digits)) {
        return Limits::max();
    }
    return x <= static_cast<From>(Limits::min()) ? Limits::min() : static_cast<To>(x);
}
/// 10 bits behind the point, halves away from zero.
__forceinline__ unsigned rounded_to_tf32(float x) {
    return (bits<unsigned>(x) + 0x1000) & ~0x1fffu;
}

/// The memory at a pointer, a pointer as a number, or an address of shared memory.
template <class T> char* at(T address, int64_t offset) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<char*>(reinterpret_cast<uint64_t>(address)) + offset;
    } else {
        const auto number = static_cast<uint64_t>(address);
        const bool is_shared = number >> 32 == 0;
        return (is_shared ? at_shared_address(number) : reinterpret_cast<char*>(number)) + offset;
    }
}

/// An address of shared memory, and what lies behind it.
template <class T> char* shared_at(T address, int64_t offset) {
    static_assert(std::is_integral_v<T>, "inline PTX with a pointer where an address of shared "
                                         "memory belongs; __cvta_generic_to_shared makes one");
    return at_shared_address(static_cast<size_t>(address)) + offset;
}
template <class T> char* global_at(T address, int64_t offset) {
    return reinterpret_cast<char*>(bits<uint64_t>(address)) + offset;
}

inline unsigned thread_in_block() {
    const uint3 thread = threadIdx;
    const dim3 size = blockDim;
    return thread.x + size.x * (thread.y + size.y * thread.z);
}
inline unsigned lane() { return thread_in_block() % 32; }
inline unsigned warp() { return thread_in_block() / 32; }
/// Blocks take turns on the 4 SMs of the GPU that is emulated.
inline unsigned sm() {
    const uint3 block = blockIdx;
    const dim3 size = gridDim;
    return (block.x + size.x * (block.y + size.y * block.z)) % 4;
}

inline void copy_async(void* shared, const void* global, size_t bytes, size_t given,
                       SourceLocation location = SourceLocation::here()) {
    simt::copy_async(shared, global, bytes, given, location);
}
inline void copy_async(void* shared, const void* global, size_t bytes,
                       SourceLocation location = SourceLocation::here()) {
    simt::copy_async(shared, global, bytes, bytes, location);
}

/// As many results as there are tiles, and the address of a row.
template <class... Operands>
void ldmatrix(SourceLocation location, bool transposed, Operands&&... operands) {
    constexpr size_t tiles = sizeof...(Operands) - 1;
    const auto given = std::forward_as_tuple(operands...);
    uint32_t tile[tiles];
    load_matrices(tile, tiles, std::get<tiles>(given), transposed, location);
    [&]<size_t... i>(std::index_sequence<i...>) { (set(std::get<i>(given), tile[i]), ...); }
    (std::make_index_sequence<tiles>());
}

/// D = A B + C
template <class T, class D>
void mma(D&& d0, D&& d1, D&& d2, D&& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
         uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3,
         SourceLocation location = SourceLocation::here()) {
    float c[4] = {c0, c1, c2, c3};
    const uint32_t a[4] = {a0, a1, a2, a3};
    const uint32_t b[2] = {b0, b1};
    flash::mma_m16n8k16<T>(c, a, b, location);
    set_each(c, d0, d1, d2, d3);
}

inline void barrier_sync(int id, int threads, SourceLocation location = SourceLocation::here()) {
    named_barrier_sync(id, threads, location);
}
inline void barrier_sync(int id, SourceLocation location = SourceLocation::here()) {
    if (id == 0) {
        __syncthreads(location);
    } else {
        named_barrier_sync(id, static_cast<int>(volume(blockDim)), location);
    }
}

inline void mbarrier_init(void* barrier, int arrivals,
                          SourceLocation location = SourceLocation::here()) {
    simt::mbarrier_init(static_cast<uint64_t*>(barrier), arrivals, location);
}
/// The state that an arrival gives is the parity of its phase, for a wait.
inline uint64_t mbarrier_arrive(void* barrier, SourceLocation location = SourceLocation::here()) {
    const int parity = mbarrier_parity(barrier);
    simt::mbarrier_arrive(static_cast<uint64_t*>(barrier), location);
    return static_cast<uint64_t>(parity);
}
inline void mbarrier_wait(void* barrier, int parity,
                          SourceLocation location = SourceLocation::here()) {
    simt::mbarrier_wait(static_cast<uint64_t*>(barrier), parity, location);
}
inline uint64_t mbarrier_expect_tx(void* barrier, int bytes,
                                   SourceLocation location = SourceLocation::here()) {
    const int parity = mbarrier_parity(barrier);
    simt::mbarrier_expect_tx(static_cast<uint64_t*>(barrier), bytes, location);
    return static_cast<uint64_t>(parity);
}

// Vectors are one access of the whole, as on a GPU.
template <class T, class First, class... More>
__forceinline__ void store(char* to, First first, More... more) {
    if constexpr (sizeof...(More) == 0) {
        *reinterpret_cast<T*>(to) = extended<T>(first);
    } else {
        const T values[] = {extended<T>(first), extended<T>(more)...};
        static_assert(sizeof values <= 16,
                      "inline PTX with a vector of more than 16 bytes; use two");
        using Access = typename Whole<sizeof values>::type;
        *reinterpret_cast<Access*>(to) = __builtin_bit_cast(Access, values);
    }
}
template <class Register, class Value> __forceinline__ void set_loaded(Register& to, Value value) {
    if constexpr (!std::is_same_v<Register, Sink>) {
        to = extended<std::remove_cv_t<Register>>(value);
    }
}
template <class T, class... Results>
__forceinline__ void load(const char* from, Results&&... results) {
    if constexpr (sizeof...(Results) == 1) {
        (set_loaded(results, *reinterpret_cast<const T*>(from)), ...);
    } else {
        struct Values {
            T of[sizeof...(Results)];
        };
        static_assert(sizeof(Values) <= 16,
                      "inline PTX with a vector of more than 16 bytes; use two");
        using Access = typename Whole<sizeof(Values)>::type;
        const auto values = __builtin_bit_cast(Values, *reinterpret_cast<const Access*>(from));
        size_t i = 0;
        (set_loaded(results, values.of[i++]), ...);
    }
}
template <class T, class Result>
__forceinline__ void load_volatile(const char* from, Result&& result) {
    set_loaded(result, *reinterpret_cast<const volatile T*>(from));
}
template <class T, class Value> __forceinline__ void store_volatile(char* to, Value value) {
    *reinterpret_cast<volatile T*>(to) = value;
}

enum class Order { relaxed, acquire, release, acq_rel };

template <Scope scope> __forceinline__ void fence_of() {
    if constexpr (scope == Scope::block) {
        __threadfence_block();
    } else if constexpr (scope == Scope::device) {
        __threadfence();
    } else {
        __threadfence_system();
    }
}
/// An atomic operation: what the thread did before one that releases comes before it, and what it
/// does after one that acquires comes after it.
template <Order order, Scope scope, class Operation>
__forceinline__ auto ordered(Operation operation) {
    if constexpr (order == Order::release || order == Order::acq_rel) {
        fence_of<scope>();
    }
    const auto found = operation();
    if constexpr (order == Order::acquire || order == Order::acq_rel) {
        fence_of<scope>();
    }
    return found;
}
/// A load that may meet the atomic operations of others.
template <class T>
T strong_load(char* from, Scope scope, SourceLocation location = SourceLocation::here()) {
    return atomic_update(
        reinterpret_cast<T*>(from), scope, location, [](T value) { return value; },
        [](T) { return false; });
}

} // namespace flash::simt::ptx
