#pragma once

#include "common/attention.hpp"

namespace two_pass_softmax {

inline constexpr int64_t Br = 128; // queries in a tile
inline constexpr int64_t Bc = 128; // keys in a tile

/// O and LSE of every head; see common/attention.hpp for shapes and layout.
void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE);

} // namespace two_pass_softmax
