// Twin of common/cuda/ptx/exp2.hpp.
#pragma once

#include <math.h>

namespace flash {

inline float fast_exp2(float x) {
    const float y = exp2f(x);
    // the hardware flushes subnormal results; NaN compares false and stays
    return y < 0x1p-126f ? 0.0f : y;
}

} // namespace flash
