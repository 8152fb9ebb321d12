// Twin of common/cuda/launch/tensor_map.hpp.
#pragma once

#include "common/simt/machine/tensor_map.hpp"

namespace flash::detail {

inline TensorMap encode_tensor_map(DType type, int rank, const void* base, const int64_t* sizes,
                                   const int64_t* strides, const int* box) {
    TensorMap map{static_cast<char*>(const_cast<void*>(base)), {}, {}, {}, rank, type};
    for (int i = 0; i < rank; ++i) {
        map.sizes[i] = sizes[i];
        map.strides[i] = (i == 0 ? 1 : strides[i - 1]) * dtype_bytes(type);
        map.box[i] = box[i];
    }
    return map;
}

} // namespace flash::detail
