// The swizzle that the rung swizzle derives, for those after it: where 16 bytes of a tile lie in
// shared memory.
//
// A tile is stored in rows of 128 bytes, all 32 banks wide: 64 elements of 16 bits. Chunk c (16
// bytes) of row r is in column c XOR (r mod 8). A row of d = 128 is two halves of 64 columns, each
// a tile of its own; d = 32 has rows of 64 bytes, two to the width of the banks, and XORs with
// (r / 2 mod 4).
#pragma once

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/types.hpp"

#ifdef __NVCC__
#define FLASH_DEVICE __device__ __forceinline__
#else
#define FLASH_DEVICE inline
#endif

namespace flash {

/// A tile of `height` rows of d elements of 16 bits; all offsets are bytes from its start, which is
/// a multiple of 1024. An object of this type is a tile in shared memory.
template <int d, int height> struct SwizzledTile {
    static constexpr int columns = d;
    static constexpr int rows = height;
    static constexpr int row_bytes = d < 64 ? 2 * d : 128; // of a half, if d = 128
    static constexpr int chunks = row_bytes / 16;          // in such a row
    static constexpr int bytes = 2 * d * rows;

    alignas(1024) char data[bytes];

    /// Where chunk `chunk` of row `row` lies.
    static FLASH_DEVICE int offset(int row, int chunk) {
        const int flip = d < 64 ? row / 2 % 4 : row % 8; // of the chunk's number
        return (chunk / chunks * rows + row) * row_bytes + (chunk % chunks ^ flip) * 16;
    }

    /// offset(row + r, chunk + 2 k), where `first` is offset(row, chunk). Adding 2 k to chunk 0 or
    /// 1 touches no bit that is set, so it is an XOR, and XORs may be done in any order. Once r and
    /// k are constants, one XOR and one constant are left. This holds for chunks 0 and 1, and for
    /// an r that is a multiple of 8 and keeps row + r in the tile.
    static FLASH_DEVICE int fragment(int first, int r, int k) {
        static_assert(chunks % 2 == 0, "k16 steps are two chunks wide");
        return (first ^ 32 * (k % (chunks / 2))) + (2 * k / chunks * rows + r) * row_bytes;
    }

    /// Where the row lies that a lane passes to ldmatrix_x4. For Q as A, from row `row` on, lanes
    /// 0-15 pass the 16 rows of chunk 0, and lanes 16-31 those of chunk 1. For V as B, transposed,
    /// the rows are 16 keys.
    static FLASH_DEVICE int offset_of_A(int row, int lane) {
        return offset(row + lane % 16, lane / 16);
    }

    /// For V as B, 16 keys and two chunks: the transposing ldmatrix takes rows in the order of A.
    static FLASH_DEVICE int offset_of_B_transposed(int lane) { return offset_of_A(0, lane); }

    /// For K as B, 16 keys: lanes 0-7 pass keys 0-7 of chunk 0, lanes 8-15 the same keys of chunk
    /// 1, and the others keys 8-15 likewise.
    static FLASH_DEVICE int offset_of_B(int lane) {
        return offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    }

    /// For an A that is stored as its transpose, 16 of its columns: rows in the order of B.
    static FLASH_DEVICE int offset_of_A_transposed(int lane) { return offset_of_B(lane); }
};

/// Writes C fragments that lie side by side, rounded to T, to rows `row` (the lane's row g) and
/// `row` + 8 of a tile.
template <class T, class Tile, int fragments>
__device__ inline void store_C(char* smem, int row, const float (&C)[fragments][4]) {
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int r = 0; r < 2; ++r) {
            *reinterpret_cast<uint32_t*>(smem + Tile::offset(row + 8 * r, n) +
                                         threadIdx.x % 4 * 4) =
                pack<T>(C[n][2 * r], C[n][2 * r + 1]);
        }
    }
}

/// Starts to copy a thread's part of a tile to shared memory, as `async_copy` does: 16 bytes of
/// every `step`th row. `from` is the tile's first element in global memory. Rows from `valid` on
/// become zeros.
template <int threads, int d, int rows, class T>
FLASH_DEVICE void start_tile(SwizzledTile<d, rows>& tile, const T* from, int valid) {
    constexpr int step = threads / (d / 8); // rows that the block copies at once
    static_assert(step % 8 == 0, "8 rows further down, the swizzle is the same");
    const int row = threadIdx.x / (d / 8); // where the thread's first 16 bytes are
    const int chunk = threadIdx.x % (d / 8);
    from += row * d + 8 * chunk;
    char* to = tile.data + tile.offset(row, chunk);
#pragma unroll
    for (int r = 0; r < rows; r += step) {
        cp_async_16(to + r * tile.row_bytes, from + r * d, r < valid - row);
    }
}

} // namespace flash
