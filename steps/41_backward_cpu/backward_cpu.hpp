#pragma once

#include "common/attention.hpp"

namespace backward_cpu {

/// dQ, dK and dV of every head; see common/attention.hpp for shapes and layout. O and LSE are those
/// of the forward pass.
void attention_backward(const flash::Problem& p, const float* Q, const float* K, const float* V,
                        const float* O, const float* LSE, const float* dO, float* dQ, float* dK,
                        float* dV);

} // namespace backward_cpu
