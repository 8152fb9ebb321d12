#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace two_head_dims {

inline constexpr int head_dims[] = {192};   // of Q and K
inline constexpr int head_dims_v[] = {128}; // of V and O

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims, and d_v the one of head_dims_v beside it.
template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace);

/// Bytes of `workspace`, device memory that holds the counter from which blocks draw tiles.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace two_head_dims
