// What scripts/simt makes of inline PTX: a call for each instruction that has a twin. Operands come
// one by one, results first, as they stand in the instruction.
#pragma once

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

/// A register's bits as another type of this size, or its number as a type of another.
template <class To, class From> __forceinline__ To bits(From from) {
    if constexpr (sizeof(To) == sizeof(From)) {
        return __builtin_bit_cast(To, from);
    } else {
        return static_cast<To>(from);
    }
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

/// Copies the first `given` of 16 bytes, which are all or none, and fills with zeros.
void copy_async(void* shared, const void* global, int bytes, int given,
                SourceLocation location = SourceLocation::here());
inline void copy_async(void* shared, const void* global, int bytes,
                       SourceLocation location = SourceLocation::here()) {
    copy_async(shared, global, bytes, bytes, location);
}

/// As many results as there are tiles, and the address of a row.
template <class... Operands>
void ldmatrix(SourceLocation location, bool transposed, Operands&&... operands) {
    constexpr size_t tiles = sizeof...(Operands) - 1;
    const auto given = std::tie(operands...);
    uint32_t tile[tiles];
    load_matrices(tile, tiles, std::get<tiles>(given), transposed, location);
    [&]<size_t... i>(std::index_sequence<i...>) {
        ((std::get<i>(given) = bits<std::decay_t<decltype(std::get<i>(given))>>(tile[i])), ...);
    }
    (std::make_index_sequence<tiles>());
}

/// D = A B + C
template <class T, class A, class B>
void mma(float& d0, float& d1, float& d2, float& d3, A a0, A a1, A a2, A a3, B b0, B b1, float c0,
         float c1, float c2, float c3, SourceLocation location = SourceLocation::here()) {
    float c[4] = {c0, c1, c2, c3};
    const uint32_t a[4] = {bits<uint32_t>(a0), bits<uint32_t>(a1), bits<uint32_t>(a2),
                           bits<uint32_t>(a3)};
    const uint32_t b[2] = {bits<uint32_t>(b0), bits<uint32_t>(b1)};
    flash::mma_m16n8k16<T>(c, a, b, location);
    std::tie(d0, d1, d2, d3) = std::tie(c[0], c[1], c[2], c[3]);
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
        *reinterpret_cast<T*>(to) = bits<T>(first);
    } else {
        const T values[] = {bits<T>(first), bits<T>(more)...};
        using Access = typename Whole<sizeof values>::type;
        *reinterpret_cast<Access*>(to) = __builtin_bit_cast(Access, values);
    }
}
template <class T, class... Results>
__forceinline__ void load(const char* from, Results&... results) {
    if constexpr (sizeof...(Results) == 1) {
        ((results = bits<Results>(*reinterpret_cast<const T*>(from))), ...);
    } else {
        struct Values {
            T of[sizeof...(Results)];
        };
        using Access = typename Whole<sizeof(Values)>::type;
        const auto values = __builtin_bit_cast(Values, *reinterpret_cast<const Access*>(from));
        size_t i = 0;
        ((results = bits<Results>(values.of[i++])), ...);
    }
}
template <class T, class Operand>
void add(char* to, Operand operand, SourceLocation location = SourceLocation::here()) {
    atomicAdd(reinterpret_cast<T*>(to), bits<T>(operand), location);
}

} // namespace flash::simt::ptx
