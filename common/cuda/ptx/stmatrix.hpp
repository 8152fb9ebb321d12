// stmatrix: a warp stores 8 x 8 tiles of 16-bit elements to shared memory, from registers in which
// they are C fragments, rounded and packed. It is ldmatrix backwards
// (common/cuda/ptx/ldmatrix.hpp), for Hopper. (PTX ISA, "stmatrix".)
//
// Each lane passes two elements of each tile, in one register: of row l / 4, those of columns 2t
// and 2t + 1 (t = l % 4). Lane 8 m + i passes the address of row i of tile m, where 16 bytes are
// written. With .trans rows and columns are exchanged, so that row i in memory is column i of what
// the lanes hold:
//
// clang-format off
//      in registers, a row per key             in memory, a row per query
//               query 0  1 |  2  3 | ..                 key 0  1  2  3  4 ..
//      key 0    lane 0     lane 1                query 0   lanes 0, 4, 8, ..  (low halves)
//      key 1    lane 4     lane 5                query 1   lanes 0, 4, 8, ..  (high halves)
//      ...                                       ...
// clang-format on
#pragma once

#include <cstdint>

#ifdef __NVCC__

namespace flash {

/// Stores one register to each of four tiles, transposed. Lanes 0-7 pass the rows of the first
/// tile, lanes 8-15 those of the second, and so on. `row` points to shared memory, to a multiple of
/// 16 bytes. All lanes of the warp call it together.
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(row))),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/// The same four tiles, as they are: lane l's register is bytes 4t to 4t + 3 of row l / 4.
__device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(row))),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

} // namespace flash

#else
#include "common/simt/instructions/stmatrix.hpp"
#endif
