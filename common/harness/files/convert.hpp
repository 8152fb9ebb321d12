// Whole tensors between float and their element type's bytes.
#pragma once

#include <cstddef>
#include <span>

#include "common/types.hpp"

namespace flash {

/// Rounds each value to `type` and writes it at `to`, `dtype_bytes(type)` bytes each; `to` need not
/// be aligned.
void to_bytes(DType type, std::span<const float> values, std::byte* to);

/// Reads `values.size()` elements of `type`; exact. `from` need not be aligned.
void to_floats(DType type, const std::byte* from, std::span<float> values);

} // namespace flash
