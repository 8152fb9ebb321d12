// How `packed_sequences` finds rows on a line of tokens, for the rungs after it: whose they are,
// and maps for tiles that end where a sequence does.
#pragma once

#include <cstdint>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/tma.hpp"

namespace flash::packed {

constexpr int far = 1 << 30; // rows, more than a line has

/// The map of a line (total, heads, d) for tiles that end where a sequence does. The copy engine
/// sees {64, x, heads d / 64, y, z}. Both x and y go along the line, a row at a step. A step of z
/// goes 2^35 bytes ahead and a row back. Coordinates are {0, far - N + i, head d / 64, end, far}:
/// row i, and those after it, of the N rows before `end`. The far steps of z take off the far rows
/// of x, because far 2^35 bytes are twice 2^64, and addresses have 64 bits. The first row that is
/// not the sequence's has x = far, which is beyond the tensor.
template <class Tile, class T> TensorMap line_map(const T* line, int64_t total, int64_t heads) {
    constexpr int d = Tile::columns;
    const int64_t row = heads * d;
    return make_tensor_map<5>(line, {64, far, heads * (d / 64), total + 1, far + 1},
                              {row, 64, row, (int64_t{1} << 34) - row},
                              {64, Tile::rows, d / 64, 1, 1});
}

/// A sequence's rows on a line: `length` of them, before `end`.
struct Sequence {
    int end, length;
};

/// Whatever the caller's table holds, no row outside of the line is touched.
__device__ inline Sequence sequence(const int* cu_seqlens, int b, int total) {
    const int begin = min(max(cu_seqlens[b], 0), total);
    const int end = min(max(cu_seqlens[b + 1], begin), total);
    return {end, end - begin};
}

} // namespace flash::packed
