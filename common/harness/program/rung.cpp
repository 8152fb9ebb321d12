#include "common/harness/program/rung.hpp"

namespace flash {

bool Rung::supports(DType type) const {
    switch (type) {
    case DType::fp16:
        return fp16 || backward.fp16;
    case DType::bf16:
        return bf16 || backward.bf16;
    default:
        return fp32 || backward.fp32;
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
