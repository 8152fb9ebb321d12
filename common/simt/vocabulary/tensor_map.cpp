#include "common/simt/vocabulary/tensor_map.hpp"

#include <string>

#include "common/attention.hpp"

namespace flash::detail {
namespace {

[[noreturn]] void refuse(const std::string& reason) { throw Error("tensor map: " + reason); }

} // namespace

TensorMap encode_tensor_map(DType type, int rank, const void* base, const int64_t* sizes, const int64_t* strides,
                            const int* box) {
    const int element = dtype_bytes(type);
    TensorMap map{};
    map.base = static_cast<char*>(const_cast<void*>(base));
    map.rank = rank;
    map.type = type;
    if (reinterpret_cast<size_t>(base) % 16 != 0) {
        refuse("the tensor begins at an address that is no multiple of 16 bytes");
    }
    for (int i = 0; i < rank; ++i) {
        const std::string dimension = " of dimension " + std::to_string(i);
        if (sizes[i] < 1 || sizes[i] > int64_t{1} << 32) {
            refuse("size " + std::to_string(sizes[i]) + dimension + " is not in 1 .. 2^32");
        }
        const int64_t stride = i == 0 ? element : strides[i - 1] * element;
        if (i > 0 && (stride <= 0 || stride % 16 != 0 || stride >= int64_t{1} << 40)) {
            refuse("the stride" + dimension + ", " + std::to_string(stride) +
                   " bytes, is no multiple of 16 below 2^40");
        }
        if (box[i] < 1 || box[i] > 256) {
            refuse("side " + std::to_string(box[i]) + dimension + " of the box is not in 1 .. 256");
        }
        map.sizes[i] = sizes[i];
        map.strides[i] = stride;
        map.box[i] = box[i];
    }
    if (box[0] * element > 128 || box[0] * element % 16 != 0) {
        refuse("rows of the box have " + std::to_string(box[0] * element) +
               " bytes; under the 128-byte swizzle it is a multiple of 16 up to 128");
    }
    return map;
}

} // namespace flash::detail
