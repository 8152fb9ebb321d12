// Tensor maps: what Hopper's copy engine (TMA) has to know about a tensor in global memory to fetch
// a box of it. (PTX ISA, "Tensors"; CUDA driver API, "cuTensorMapEncodeTiled".)
//
// A map is made on the host and passed to the kernel by value, as `const __grid_constant__
// flash::TensorMap K`.
#pragma once

#include <cstdint>
#include <string>

#include "common/error.hpp"
#include "common/types.hpp"

#ifdef __NVCC__

#include <cuda.h>

namespace flash {

/// A tensor, and the box of it that one copy moves.
struct TensorMap {
    CUtensorMap encoded; // 128 bytes that only the copy engine reads
};

namespace detail {
TensorMap encode_tensor_map(DType type, int rank, const void* base, const int64_t* sizes,
                            const int64_t* strides, const int* box);
}

} // namespace flash

#else
#include "common/simt/language/tensor_map.hpp"
#endif

namespace flash {
namespace detail {

inline void check_tensor_map(DType type, int rank, const void* base, const int64_t* sizes,
                             const int64_t* strides, const int* box) {
    const auto refuse = [](const std::string& what, int64_t is, const std::string& must) {
        throw Error("cannot make a tensor map: " + what + " is " + std::to_string(is) +
                    ", but must be " + must);
    };
    const auto dimension = [](const char* what, int i) { return what + std::to_string(i); };
    const int bytes = dtype_bytes(type);
    if (const auto address = reinterpret_cast<uintptr_t>(base); address == 0 || address % 16 != 0) {
        refuse("the tensor's address", static_cast<int64_t>(address),
               "a multiple of 16, and not 0");
    }
    for (int i = 0; i < rank; ++i) {
        if (sizes[i] < 1 || sizes[i] > int64_t{1} << 32) {
            refuse(dimension("the size of dimension ", i), sizes[i], "1 to 2^32");
        }
        if (i > 0 && (strides[i - 1] < 1 || strides[i - 1] * bytes % 16 != 0 ||
                      strides[i - 1] >= int64_t{1} << 38)) {
            refuse(dimension("the stride of dimension ", i), strides[i - 1],
                   "a positive multiple of " + std::to_string(16 / bytes) + " elements (16 bytes)");
        }
        if (box[i] < 1 || box[i] > 256) {
            refuse(dimension("the side of the box in dimension ", i), box[i], "1 to 256");
        }
    }
    // under a swizzle narrower rows would begin as far apart all the same, with gaps between them
    if (box[0] * bytes != 128 && box[0] * bytes != 64) {
        refuse("the width of the box", box[0] * bytes, "128 or 64 bytes, those of a swizzle");
    }
}

} // namespace detail

/// Describes a tensor of `rank` dimensions (2 to 5), the innermost first. `strides` are those of
/// dimensions 1, 2, ... in elements; dimension 0 has stride 1. `box` is what one copy moves. Its
/// rows (dimension 0) are 128 or 64 bytes wide and lie one after the other in shared memory,
/// swizzled as in flash::SwizzledTile. Elements of the box that are beyond the tensor are read as
/// zeros, and are not written.
///
/// Throws Error when the copy engine cannot work with these numbers. The message says which of them
/// it is, and what would work.
template <int rank, class T>
TensorMap make_tensor_map(const T* base, const int64_t (&sizes)[rank],
                          const int64_t (&strides)[rank - 1], const int (&box)[rank]) {
    static_assert(rank >= 2 && rank <= 5, "the copy engine knows tensors of up to five dimensions");
    detail::check_tensor_map(dtype_of<T>, rank, base, sizes, strides, box);
    return detail::encode_tensor_map(dtype_of<T>, rank, base, sizes, strides, box);
}

/// The map of a tensor (heads, N, d) for tiles that are a flash::SwizzledTile of all columns and
/// some rows of a head. A box is 128 bytes wide, so the copy engine sees {64, N, d / 64, heads},
/// and a tile arrives as panels of 64 columns. Two elements of e4m3 count as one column. N is a
/// dimension of its own, so that a tile ends where its head does. Coordinates are {0, row, 0,
/// head}. Where the tensor is a part of each head of a larger one, `head_rows` is how many rows lie
/// from one head to the next.
template <class Tile, class T>
TensorMap tile_map(const T* tensor, int64_t heads, int64_t N, int64_t head_rows) {
    constexpr int d = Tile::columns * 2 / sizeof(T), panel = Tile::row_bytes / sizeof(T);
    return make_tensor_map<4>(tensor, {panel, N, d / panel, heads}, {d, panel, head_rows * d},
                              {panel, Tile::rows, d / panel, 1});
}
template <class Tile, class T> TensorMap tile_map(const T* tensor, int64_t heads, int64_t N) {
    return tile_map<Tile>(tensor, heads, N, N);
}

} // namespace flash
