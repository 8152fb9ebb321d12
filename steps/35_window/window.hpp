#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace window {

inline constexpr int head_dims[] = {64, 128, 256};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims. `sink` is (H), or null if the problem has none.
template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
               float* LSE, void* workspace);

/// Bytes of `workspace`, device memory that holds the counter from which blocks draw tiles.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace window
