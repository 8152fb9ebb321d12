#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace tile_barriers {

inline constexpr int head_dims[] = {32, 64, 128};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims.
template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE);

} // namespace tile_barriers
