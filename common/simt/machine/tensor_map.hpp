// What a tensor map holds here: the tensor and the box, as they were given, in place of NVIDIA's
// 128 bytes.
#pragma once

#include <cstdint>

#include "common/types.hpp"

namespace flash {

/// Made by make_tensor_map (common/cuda/launch/tensor_map.hpp). Dimensions are innermost first.
struct alignas(64) TensorMap { // as on a GPU
    char* base;
    int64_t sizes[5];   // in elements
    int64_t strides[5]; // in bytes; dimension 0 has that of one element
    int box[5];         // in elements
    int rank;
    DType type;
};

} // namespace flash
