// wgmma: matrix products of a warpgroup (four warps, 128 threads) whose operands lie in shared
// memory. (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".)
//
// C[64 x N] += A[64 x 16] B[16 x N]. The number of a warpgroup's first warp is a multiple of four.
// Warp w of the four holds rows 16 w to 16 w + 15 of C, as one C fragment of mma_m16n8k16
// (common/cuda/ptx/mma.hpp) per eight columns. B is in shared memory. So is A, or else each warp
// holds its 16 rows of it in registers, as an A fragment of mma_m16n8k16. Therefore C, rounded and
// packed, is an A operand as it stands, as with mma.sync.
//
// The products run while the threads go on:
//
//      wgmma_fence();  wgmma_m64k16(C, ..);  wgmma_m64k16(C, ..);  wgmma_commit();  ...
//      wgmma_wait<0>(C);
//
// Until that wait the product owns the registers of C, and those of A if A is in registers. No
// thread may read or write them (the PTX manual calls both undefined). Operands in shared memory
// may be read but not written.
//
// An operand in shared memory is named by a descriptor, 64 bits in place of an address:
//
// clang-format off
//      bits 0-13    16-29                 32-45                62-63
//      start / 16   leading_bytes / 16    stride_bytes / 16    1: swizzled, rows of 128 bytes; 2: 64
//
//   Its unit is the atom: 8 rows of 128 bytes, swizzled as in SwizzledTile, at a multiple of 1024
//   bytes.
//
//   A, and B = K^T: a k16 step is 16 elements      B = V (transpose_B): a k16 step is 16 rows of V
//   of each row (32 of its 128 bytes)
//   <-- 64 elements -->                            <-- 64 columns -->    <-- next 64 -->
//   +------------------+                           +------------------+  +--------------
//   | atom: 8 rows     |   k16 step: +32 bytes     | atom: 8 keys     |  | atom
//   +------------------+                           +------------------+  +--------------
//   | atom: next 8     |   at + stride_bytes       | atom: next 8     |  at + leading_bytes
//   +------------------+                           +------------------+
//                        leading_bytes: unused   at + stride_bytes; k16 step: +2 atoms, 2048 bytes
//
//   An A that is stored as its transpose, 64 of its rows side by side, is read as V is
//   (transpose_A).
//
//   Of e4m3 a step is 32 elements, which are 32 bytes, too, and nothing can be transposed: k is
//   contiguous in A and in B. A in registers holds four elements in each:
//
//                k: 4t .. 4t+3   4t+16 .. 4t+19
//      A  row g    |    a[0]    |     a[2]    |
//         row g+8  |    a[1]    |     a[3]    |
// clang-format on
#pragma once

#include <cstdint>

#include "common/cuda/launch/source_location.hpp"
#include "common/types.hpp"

#ifdef __NVCC__

#include "common/cuda/ptx/wgmma_shapes.hpp"

namespace flash {

/// The descriptor of an operand that begins at `smem`. Its rows are 128 or 64 bytes.
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* smem, int leading_bytes,
                                                     int stride_bytes, int row_bytes = 128) {
    const auto start = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    return uint64_t{row_bytes == 128 ? 1u : 2u} << 62 |
           static_cast<uint64_t>(stride_bytes >> 4) << 32 |
           static_cast<uint64_t>(leading_bytes >> 4) << 16 | start >> 4;
}

/// C = A B, or += if `accumulate`. T is Half or Bfloat16. The whole warpgroup calls it.
template <class T, int N, bool transpose_B = false, bool transpose_A = false>
__device__ __forceinline__ void wgmma_m64k16(float (&C)[N / 8][4], uint64_t A, uint64_t B,
                                             bool accumulate = true, SourceLocation = {}) {
    detail::wgmma<T, N, transpose_A, transpose_B>(C, A, B, accumulate);
}
template <class T, int N, bool transpose_B = false>
__device__ __forceinline__ void wgmma_m64k16(float (&C)[N / 8][4], const uint32_t (&A)[4],
                                             uint64_t B, bool accumulate = true,
                                             SourceLocation = {}) {
    detail::wgmma<T, N, transpose_B>(C, A, B, accumulate);
}

/// The same for E4m3, with 32 k.
template <int N>
__device__ __forceinline__ void wgmma_m64k32(float (&C)[N / 8][4], uint64_t A, uint64_t B,
                                             bool accumulate = true, SourceLocation = {}) {
    detail::wgmma_e4m3<N>(C, A, B, accumulate);
}
template <int N>
__device__ __forceinline__ void wgmma_m64k32(float (&C)[N / 8][4], const uint32_t (&A)[4],
                                             uint64_t B, bool accumulate = true,
                                             SourceLocation = {}) {
    detail::wgmma_e4m3<N>(C, A, B, accumulate);
}

/// Stands between what wrote C or A's registers and the first wgmma that uses them. The whole
/// warpgroup calls it.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Closes a group: the products that the warpgroup has started since the last commit.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `InFlight` of the warpgroup's groups are under way. C is then complete, and
/// may be read.
template <int InFlight, int n> __device__ __forceinline__ void wgmma_wait(float (&C)[n][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(InFlight) : "memory");
#pragma unroll
    for (int i = 0; i < n; ++i) { // keeps the compiler from reading C earlier
        asm volatile("" : "+f"(C[i][0]), "+f"(C[i][1]), "+f"(C[i][2]), "+f"(C[i][3])::"memory");
    }
}

/// copy = A, for threads that need what A holds while a product has its registers. (Without
/// `volatile` the compiler would see that both hold the same, and read A's registers after all.)
template <int k16>
__device__ __forceinline__ void copy_A(uint32_t (&copy)[k16][4], const uint32_t (&A)[k16][4]) {
#pragma unroll
    for (int k = 0; k < k16; ++k) {
        for (int c = 0; c < 4; ++c) {
            asm volatile("mov.b32 %0, %1;" : "=r"(copy[k][c]) : "r"(A[k][c]));
        }
    }
}

} // namespace flash

#define FLASH_DEVICE __device__ __forceinline__
#else
#include "common/simt/instructions/wgmma.hpp"
#define FLASH_DEVICE inline
#endif

namespace flash {

/// The descriptor of what lies `bytes` further on.
FLASH_DEVICE uint64_t advance(uint64_t descriptor, int bytes) { return descriptor + (bytes >> 4); }

/// Starts C = A B^T as `wgmma_tma` does it, a product of swizzled tiles of d columns: A has 64
/// rows, and B as many as C has columns. k16 steps are 32 bytes apart in a panel of 64 columns, and
/// panels a whole tile.
template <class T, int d, int n>
FLASH_DEVICE void start_ABt(float (&C)[n][4], uint64_t A, uint64_t B,
                            SourceLocation location = SourceLocation::here()) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        const int panel = 128 * (k / 4);
        wgmma_m64k16<T, 8 * n>(C, advance(A, panel * 64 + 32 * (k % 4)),
                               advance(B, panel * 8 * n + 32 * (k % 4)), k > 0, location);
    }
    wgmma_commit();
}

/// Starts C += A B, likewise: A is in registers, B a swizzled tile of as many columns as C has. 16
/// of its rows are 2048 bytes.
template <class T, int n, int k16>
FLASH_DEVICE void start_AB(float (&C)[n][4], const uint32_t (&A)[k16][4], uint64_t B,
                           SourceLocation location = SourceLocation::here()) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < k16; ++k) {
        wgmma_m64k16<T, 8 * n, true>(C, A[k], advance(B, 2048 * k), true, location);
    }
    wgmma_commit();
}

} // namespace flash
