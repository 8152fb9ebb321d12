// Twin of common/cuda/tensor_map.hpp.
#pragma once

#include "common/simt/machine/tensor_map.hpp"

namespace flash::detail {
TensorMap encode_tensor_map(DType type, int rank, const void* base, const int64_t* sizes, const int64_t* strides,
                            const int* box);
}
