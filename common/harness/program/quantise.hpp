// Tensors in e4m3: numbers, and scales of blocks of rows (common/attention.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace flash {

/// The scales of a tensor of heads of `rows` rows of `d` numbers. Each number becomes the nearest
/// that e4m3 can hold, times its scale. The scale of a block is its largest number over 448,
/// rounded up to few enough bits for that product to be exact in fp32; of a block of zeros it is 1.
/// Infinity and NaN become NaN, and are not counted.
std::vector<float> quantise(std::vector<float>& values, int64_t rows, int64_t d);

/// Each number over its scale, which is exact: what the tensor in e4m3 holds.
std::vector<float> in_units(std::span<const float> values, std::span<const float> scales,
                            int64_t rows, int64_t d);

} // namespace flash
