#pragma once

#include "common/attention.hpp"

namespace wide_loads {

inline constexpr int head_dims[] = {32, 64, 128};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// See common/attention.hpp for shapes and layout. d is one of head_dims.
void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE);

} // namespace wide_loads
