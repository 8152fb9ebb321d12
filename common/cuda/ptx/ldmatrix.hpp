// ldmatrix: a warp fetches 8 x 8 tiles of 16-bit elements from shared memory, laid out as mma.sync
// wants its operands.
//
// A row of a tile is 16 contiguous bytes. Lane 8 m + i passes the address of row i of tile m. From
// each tile, lane l receives two elements of row l / 4, in one register:
//
// clang-format off
//      column   0  1 |  2  3 |  4  5 |  6  7
//      row 0    lane 0  lane 1  lane 2  lane 3      .trans: the same, rows and columns exchanged:
//      row 1    lane 4  lane 5  lane 6  lane 7      lane l receives rows 2t and 2t + 1 of column g
//      ...                                          (g = l / 4, t = l % 4)
//      row 7    lane 28 lane 29 lane 30 lane 31
// clang-format on
//
// The 8 rows of a tile are fetched together, without a bank conflict if they lie in 8 different
// 16-byte columns of the 128 bytes that the 32 banks span.
#pragma once

#include <cstdint>

#ifdef __NVCC__

namespace flash {

/// Fetches one register from each of four tiles. Lanes 0-7 pass the rows of the first tile, lanes
/// 8-15 those of the second, and so on. `row` points to shared memory, to a multiple of 16 bytes.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/// The same four tiles, each transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}

} // namespace flash

#else
#include "common/simt/instructions/ldmatrix.hpp"
#endif
