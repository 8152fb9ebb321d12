#include "common/harness/rung.hpp"

namespace flash {

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
