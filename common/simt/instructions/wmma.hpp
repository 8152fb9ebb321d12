// The matrices of mma.h: parts of them in the registers of a warp. Multiplying is that of
// mma.sync m16n8k16, twice for each of the three shapes, as on a GPU; the elements lie in the lanes
// as that wants them (common/cuda/ptx/mma.hpp), which is one of the ways that mma.h leaves open.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/simt/instructions/mma.hpp"
#include "common/simt/language/keywords.hpp"
#include "common/simt/language/narrow.hpp"

namespace flash::simt {

/// The lanes of a warp meet before they load or store a part of a matrix.
void meet_for_matrix(const char* operation, SourceLocation location);

template <class T> inline constexpr bool is_narrow = false;
template <class T> inline constexpr bool is_narrow<Narrow<T>> = true;
template <class T> struct WidthOf;
template <class T> struct WidthOf<Narrow<T>> { using type = T; };

} // namespace flash::simt

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

using Location = flash::simt::SourceLocation;

/// The place of an element in its matrix.
struct Place {
    int row, column;
};

template <class Use, int M, int N, int K, class T, class Layout = void> class fragment {
    static_assert(M * N == 256 && K == 16,
                  "shapes other than 16x16x16, 32x8x16 and 8x32x16 are not supported");
    static constexpr bool is_a = std::is_same_v<Use, matrix_a>;
    static constexpr bool is_b = std::is_same_v<Use, matrix_b>;
    static_assert(flash::simt::is_narrow<T> || (std::is_same_v<T, float> && !is_a && !is_b),
                  "a matrix holds __half or __nv_bfloat16, an accumulator __half or float");

  public:
    using element_type = T;
    using storage_element_type = T;
    static constexpr int rows = is_b ? K : M;
    static constexpr int columns = is_a ? K : N;
    static constexpr int num_elements = rows * columns / 32;
    static constexpr int num_storage_elements = num_elements;
    static constexpr bool is_row_major = std::is_same_v<Layout, row_major>;
    T x[num_elements];

    /// Where the current lane's element i lies. The shape 8x32x16 is 32x8x16 of the transposed
    /// matrices.
    static Place place(int i) {
        const int lane =
            static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
            32;
        const int g = lane / 4;
        const int pair = 2 * (lane % 4) + i % 2;
        constexpr bool transposed = M == 8;
        if constexpr (!is_a && !is_b) {
            // two parts of 16 x 8: side by side, or one above the other
            const int part = i / 4;
            const int row = g + i % 4 / 2 * 8;
            const Place whole =
                N == 16 ? Place{row, pair + 8 * part} : Place{row + 16 * part, pair};
            return transposed ? Place{whole.column, whole.row} : whole;
        } else if constexpr (is_a != transposed) {
            // the first operand of mma.sync: 16 rows, of which there are two where it has 32
            const int row = g + i % 4 / 2 * 8 + i / 8 * 16;
            const int k = pair + i % 8 / 4 * 8;
            return transposed ? Place{k, row} : Place{row, k};
        } else {
            // the second one: 8 columns, of which there are two where it has 16
            const int column = g + i / 4 * 8;
            const int k = pair + i % 4 / 2 * 8;
            return transposed ? Place{column, k} : Place{k, column};
        }
    }
};

/// Where the element of a matrix with that distance between rows, or columns, lies in memory.
inline int64_t offset_of(Place place, int64_t distance, bool rows) {
    return rows ? place.row * distance + place.column : place.column * distance + place.row;
}

template <class Fragment, class T> void fill_fragment(Fragment& fragment, T value) {
    for (auto& x : fragment.x) {
        x = static_cast<typename Fragment::element_type>(value);
    }
}

/// Elements of a pair that lie side by side are one access of 4 bytes, or of 8.
template <class Fragment, class T>
inline __attribute__((always_inline)) void load_elements(Fragment& fragment, const T* matrix,
                                                         int64_t distance, bool rows) {
    struct alignas(2 * sizeof(T)) Two {
        FLASH_SIMT_UNSPLIT(T first, second;)
    };
    for (int i = 0; i < Fragment::num_elements; i += 2) {
        const int64_t first = offset_of(Fragment::place(i), distance, rows);
        const int64_t second = offset_of(Fragment::place(i + 1), distance, rows);
        const bool aligned = reinterpret_cast<uintptr_t>(matrix + first) % alignof(Two) == 0;
        if (second == first + 1 && aligned) {
            const Two two = *reinterpret_cast<const Two*>(matrix + first);
            fragment.x[i] = two.first;
            fragment.x[i + 1] = two.second;
        } else {
            fragment.x[i] = matrix[first];
            fragment.x[i + 1] = matrix[second];
        }
    }
}
template <class Fragment, class T>
inline __attribute__((always_inline)) void store_elements(T* matrix, const Fragment& fragment,
                                                          int64_t distance, bool rows) {
    struct alignas(2 * sizeof(T)) Two {
        FLASH_SIMT_UNSPLIT(T first, second;)
    };
    for (int i = 0; i < Fragment::num_elements; i += 2) {
        const int64_t first = offset_of(Fragment::place(i), distance, rows);
        const int64_t second = offset_of(Fragment::place(i + 1), distance, rows);
        const bool aligned = reinterpret_cast<uintptr_t>(matrix + first) % alignof(Two) == 0;
        if (second == first + 1 && aligned) {
            Two two;
            two.first = fragment.x[i];
            two.second = fragment.x[i + 1];
            *reinterpret_cast<Two*>(matrix + first) = two;
        } else {
            matrix[first] = fragment.x[i];
            matrix[second] = fragment.x[i + 1];
        }
    }
}

template <class Use, int M, int N, int K, class T, class Layout>
inline __attribute__((always_inline)) void
load_matrix_sync(fragment<Use, M, N, K, T, Layout>& fragment, const T* matrix, unsigned distance,
                 Location location = Location::here()) {
    static_assert(!std::is_void_v<Layout>, "say how an accumulator lies in memory");
    flash::simt::meet_for_matrix("load_matrix_sync", location);
    load_elements(fragment, matrix, distance, fragment.is_row_major);
}
template <int M, int N, int K, class T>
inline __attribute__((always_inline)) void
load_matrix_sync(fragment<accumulator, M, N, K, T>& fragment, const T* matrix, unsigned distance,
                 layout_t layout, Location location = Location::here()) {
    flash::simt::meet_for_matrix("load_matrix_sync", location);
    load_elements(fragment, matrix, distance, layout == mem_row_major);
}
template <int M, int N, int K, class T>
inline __attribute__((always_inline)) void
store_matrix_sync(T* matrix, const fragment<accumulator, M, N, K, T>& fragment, unsigned distance,
                  layout_t layout, Location location = Location::here()) {
    flash::simt::meet_for_matrix("store_matrix_sync", location);
    store_elements(matrix, fragment, distance, layout == mem_row_major);
}

/// Pairs of elements, as the registers of mma.sync hold them.
template <int registers, class T>
inline void take_registers(uint32_t (&to)[registers], const T* elements) {
    for (int i = 0; i < registers; ++i) {
        to[i] = elements[2 * i].bits | static_cast<uint32_t>(elements[2 * i + 1].bits) << 16;
    }
}

/// D = A B + C
template <int M, int N, int K, class D, class T, class LayoutA, class LayoutB, class C>
inline void
mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, T, LayoutA>& a,
         const fragment<matrix_b, M, N, K, T, LayoutB>& b,
         const fragment<accumulator, M, N, K, C>& c, Location location = Location::here()) {
    using Width = typename flash::simt::WidthOf<T>::type;
    constexpr bool transposed = M == 8;
    const T* const first = transposed ? b.x : a.x;
    const T* const second = transposed ? a.x : b.x;
    for (int part = 0; part < 2; ++part) {
        uint32_t first_reg[4], second_reg[2];
        take_registers(first_reg, first + (N == 16 ? 0 : 8 * part));
        take_registers(second_reg, second + (N == 16 ? 4 * part : 0));
        float sums[4];
        for (int i = 0; i < 4; ++i) {
            sums[i] = c.x[4 * part + i];
        }
        flash::mma_m16n8k16<Width>(sums, first_reg, second_reg, location);
        for (int i = 0; i < 4; ++i) {
            d.x[4 * part + i] = sums[i];
        }
    }
}

} // namespace nvcuda::wmma
