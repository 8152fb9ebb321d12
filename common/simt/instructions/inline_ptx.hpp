// What scripts/simt makes of inline PTX: a call for each instruction that has a twin. Operands come
// one by one, results first, as they stand in the instruction.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
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
inline void mbarrier_arrive(void* barrier, SourceLocation location = SourceLocation::here()) {
    simt::mbarrier_arrive(static_cast<uint64_t*>(barrier), location);
}
inline void mbarrier_expect_tx(void* barrier, int bytes,
                               SourceLocation location = SourceLocation::here()) {
    simt::mbarrier_expect_tx(static_cast<uint64_t*>(barrier), bytes, location);
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
template <class T> void add(char* to, T operand, SourceLocation location = SourceLocation::here()) {
    atomicAdd(reinterpret_cast<T*>(to), operand, location);
}

} // namespace flash::simt::ptx
