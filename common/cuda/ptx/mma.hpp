// Tensor cores through mma.sync, and the packing of its operands. (PTX ISA, "mma.m16n8k16" for .f16
// and .bf16.)
//
// The lanes of a warp multiply together: A is 16 x 16, B is 16 x 8, C is 16 x 8, and each lane
// holds a few elements of each.
// Each register of A and B holds two elements of 16 bits, the left or upper one in its low half.
// With g = lane / 4 and t = lane % 4, a lane holds:
//
// clang-format off
//                k: 2t 2t+1   2t+8 2t+9             n: g                        n: 2t      2t+1
//      A  row g    |  a[0]  |   a[2]  |    B  k 2t   |      |        C  row g   |  c[0]  |  c[1]  |
//         row g+8  |  a[1]  |   a[3]  |       k 2t+1 | b[0] |           row g+8 |  c[2]  |  c[3]  |
//                                             k 2t+8 |      |
//                                             k 2t+9 | b[1] |
// clang-format on
//
// A lane holds the same rows of C as of A, and of two C tiles side by side also the same columns.
// So two such tiles, rounded and packed, are an A operand as they stand.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/cuda/cuda.hpp"
#include "common/types.hpp"

#ifdef __NVCC__

namespace flash {

/// C += A B; all 32 lanes of the warp must call it. T is Half or Bfloat16, C is fp32.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
    static_assert(dtype_of<T> != DType::fp32, "mma.sync m16n8k16 takes Half or Bfloat16");
    if constexpr (dtype_of<T> == DType::fp16) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

/// Two floats, rounded to T (nearest even), in one register: `low` in bits 0-15, `high` in bits
/// 16-31.
template <class T> __device__ __forceinline__ uint32_t pack(float low, float high) {
    static_assert(dtype_of<T> != DType::fp32, "pack rounds to Half or Bfloat16");
    uint32_t packed;
    if constexpr (dtype_of<T> == DType::fp16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    }
    return packed;
}

/// Like pack, but what is too large for fp16 becomes its largest number, 65504, and not infinity.
/// bf16 has the range of fp32 and does not need this. (PTX ISA, "cvt", modifier .satfinite.)
template <class T> __device__ __forceinline__ uint32_t pack_saturated(float low, float high) {
    if constexpr (dtype_of<T> == DType::fp16) {
        uint32_t packed;
        asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
        return packed;
    } else {
        return pack<T>(low, high);
    }
}

} // namespace flash

#else
#include "common/simt/instructions/mma.hpp"
#endif

namespace flash {

/// The maximum of a row of a C fragment over the 4 lanes that share the row; each of them gets it.
/// All 32 lanes must call it.
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// The sum of a row, in the same way.
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// The maxima of rows g and g + 8 of C fragments that lie side by side, over the elements that this
/// lane holds.
template <int fragments>
__device__ inline void lane_max(const float (&C)[fragments][4], float (&top)[2]) {
    float chain[4] = {C[0][0], C[0][1], C[0][2], C[0][3]}; // four short chains, not two long ones
#pragma unroll
    for (int n = 1; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            chain[c] = fmaxf(chain[c], C[n][c]);
        }
    }
    top[0] = fmaxf(chain[0], chain[1]);
    top[1] = fmaxf(chain[2], chain[3]);
}

/// lane_max in half as many instructions, for rows whose maximum is not negative. The bits of such
/// floats, read as integers, have the same order, and Hopper has an instruction for the largest of
/// three integers. If all elements of a row are negative, the result is one of them, but perhaps
/// not the largest.
template <int fragments>
__device__ inline void lane_max_if_positive(const float (&C)[fragments][4], float (&top)[2]) {
    for (int r = 0; r < 2; ++r) {
        int chain[2] = {__float_as_int(C[0][2 * r]), __float_as_int(C[0][2 * r + 1])};
#pragma unroll
        for (int n = 1; n < fragments; ++n) {
            chain[n % 2] = __vimax3_s32(chain[n % 2], __float_as_int(C[n][2 * r]),
                                        __float_as_int(C[n][2 * r + 1]));
        }
        top[r] = __int_as_float(max(chain[0], chain[1]));
    }
}

/// Two elements of T that are 1, in one register: B of a product that sums up the rows of A, as in
/// `lean_softmax`.
template <class T> constexpr uint32_t ones = from_float<T>(1).bits * 0x10001u;

/// The question of `lazy_maximum`: are all elements of the warp's C fragments negative? All 32
/// lanes must call it.
// four chains of ANDs: in a single one, each waits for the one before
template <int m, int n> __device__ inline bool all_negative(const float (&C)[m][n][4]) {
    unsigned sign[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
    for (int e = 0; e < 4 * m * n; ++e) {
        sign[e % 4] &= __float_as_uint(C[e / 4 / n][e / 4 % n][e % 4]);
    }
    return __all_sync(0xffffffffu, (sign[0] & sign[1] & sign[2] & sign[3]) >> 31);
}

/// The mask that `mma_sync` derives, for C fragments that lie side by side. Row g sees the first
/// `visible` columns, row g + 8 sees 8 more because the mask is causal, and no row sees more than
/// `exist`.
template <int fragments>
__device__ inline void mask(float (&C)[fragments][4], int exist, int visible) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 >= min(exist, visible + c / 2 * 8)) {
                C[n][c] = -INFINITY;
            }
        }
    }
}

/// Multiplies C fragments that lie side by side: row g by factor[0], row g + 8 by factor[1].
template <int fragments>
__device__ inline void scale_rows(float (&C)[fragments][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            C[n][c] *= factor[c / 2];
        }
    }
}

/// Eight numbers times a factor, rounded.
template <class T> __device__ inline uint4 pack_8(const float (&x)[8], float factor) {
    return make_uint4(pack<T>(x[0] * factor, x[1] * factor), pack<T>(x[2] * factor, x[3] * factor),
                      pack<T>(x[4] * factor, x[5] * factor), pack<T>(x[6] * factor, x[7] * factor));
}

/// The largest finite number of T.
template <class T> constexpr float largest = largest_number(dtype_of<T>);

/// An element of O, limited to what T can hold. O is an average of V, but rounded weights may add
/// up to a little more than 1, which would carry a V of 65504 beyond fp16. So what is finite stays
/// finite; infinity and NaN come from V, and stay, too.
template <class T> __device__ inline float limited(float x) {
    return fabsf(x) < INFINITY ? fminf(fmaxf(x, -largest<T>), largest<T>) : x;
}

/// Two elements of O, limited and rounded to T.
template <class T> __device__ inline uint32_t pack_O(float low, float high) {
    return pack<T>(limited<T>(low), limited<T>(high));
}

/// All elements of O, limited. bf16 has the range of fp32, and nothing to limit.
template <class T, int fragments> __device__ inline void limit_O(float (&O)[fragments][4]) {
    if constexpr (dtype_of<T> == DType::fp16) {
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            for (int c = 0; c < 4; ++c) {
                O[n][c] = limited<T>(O[n][c]);
            }
        }
    }
}

/// Two C fragments that lie side by side, rounded to T, as one A fragment, as `mma_sync` derives
/// it.
template <class T>
__device__ inline void pack_A(uint32_t (&A)[4], const float (&left)[4], const float (&right)[4]) {
    A[0] = pack<T>(left[0], left[1]);
    A[1] = pack<T>(left[2], left[3]);
    A[2] = pack<T>(right[0], right[1]);
    A[3] = pack<T>(right[2], right[3]);
}

/// The same, saturated: what is too large for T becomes its largest number.
template <class T>
__device__ inline void pack_A_saturated(uint32_t (&A)[4], const float (&left)[4],
                                        const float (&right)[4]) {
    A[0] = pack_saturated<T>(left[0], left[1]);
    A[1] = pack_saturated<T>(left[2], left[3]);
    A[2] = pack_saturated<T>(right[0], right[1]);
    A[3] = pack_saturated<T>(right[2], right[3]);
}

/// C fragments that lie side by side, rounded to T, as A fragments: two of 8 columns make one of
/// 16.
template <class T, int k16>
__device__ inline void pack_A(uint32_t (&A)[k16][4], const float (&C)[2 * k16][4]) {
#pragma unroll
    for (int n = 0; n < 2 * k16; ++n) {
        A[n / 2][n % 2 * 2] = pack<T>(C[n][0], C[n][1]);
        A[n / 2][n % 2 * 2 + 1] = pack<T>(C[n][2], C[n][3]);
    }
}

/// Stores C fragments that lie side by side, as wide as a row of X, times `factor` and rounded.
/// They go to rows `row` (the lane's row g) and `row` + 8 of X in global memory, if these are less
/// than `rows`.
template <class T, int fragments>
__device__ inline void store_rows(T* X, const float (&C)[fragments][4], float factor, int row,
                                  int rows) {
    for (int r = 0; r < 2; ++r) {
        if (row + 8 * r < rows) {
#pragma unroll
            for (int n = 0; n < fragments; ++n) {
                *reinterpret_cast<uint32_t*>(X + 8 * ((row + 8 * r) * fragments + n) +
                                             threadIdx.x % 4 * 2) =
                    pack<T>(C[n][2 * r] * factor, C[n][2 * r + 1] * factor);
            }
        }
    }
}

} // namespace flash
