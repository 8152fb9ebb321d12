#pragma once

#include "common/attention.hpp"

namespace safe_softmax {

/// O and LSE of every head; see common/attention.hpp for shapes and layout.
void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE);

/// Bytes of S and P, for as many heads as run at the same time.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace safe_softmax
