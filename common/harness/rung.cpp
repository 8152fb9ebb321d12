#include "common/harness/rung.hpp"

namespace flash {

bool Rung::supports(DType type) const {
    switch (type) {
    case DType::fp16:
        return fp16 != nullptr || backward.fp16 != nullptr;
    case DType::bf16:
        return bf16 != nullptr || backward.bf16 != nullptr;
    default:
        return fp32 != nullptr || backward.fp32 != nullptr;
    }
}

std::vector<DType> Rung::dtypes() const {
    std::vector<DType> supported;
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        if (supports(type)) {
            supported.push_back(type);
        }
    }
    return supported;
}

} // namespace flash
