// The swizzle that rung 11 derives, for the rungs after it: where 16 bytes of a tile lie in shared memory.
//
// A tile is stored in rows of 128 bytes, all 32 banks wide: 64 elements of 16 bits. Chunk c (16 bytes) of row r is in
// column c XOR (r mod 8). A row of d = 128 is two halves of 64 columns, each a tile of its own; d = 32 has rows of
// 64 bytes, two to the width of the banks, and XORs with (r / 2 mod 4).
#pragma once

#include "common/types.hpp"

#ifdef __CUDACC__
#define FLASH_DEVICE __device__ __forceinline__
#else
#define FLASH_DEVICE inline
#endif

namespace flash {

/// A tile of `rows` rows of d elements of 16 bits; all offsets are bytes from its start, which is a multiple of 1024.
template <int d, int rows> struct SwizzledTile {
    static constexpr int row_bytes = d < 64 ? 2 * d : 128; // of a half, if d = 128
    static constexpr int chunks = row_bytes / 16;          // in such a row
    static constexpr int bytes = 2 * d * rows;

    /// Where chunk `chunk` of row `row` lies.
    static FLASH_DEVICE int offset(int row, int chunk) {
        const int key = d < 64 ? row / 2 % 4 : row % 8;
        return (chunk / chunks * rows + row) * row_bytes + (chunk % chunks ^ key) * 16;
    }

    /// Where row + r and chunk + 2 k of offset `lane` = offset(row, chunk) lie, if chunk is 0 or 1 and r a multiple of
    /// 8: the swizzle is an XOR, so the chunk may be XORed in afterwards, and the rest is a constant once r and k are.
    static FLASH_DEVICE int further(int lane, int r, int k) {
        return (lane ^ 32 * (k % (chunks / 2))) + (2 * k / chunks * rows + r) * row_bytes;
    }
};

} // namespace flash
