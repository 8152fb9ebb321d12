#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace split_kv {

inline constexpr int head_dims[] = {32, 64, 128};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims.
template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace);

/// Bytes of `workspace`, device memory that holds the results of single splits and counts them.
/// How many splits there are depends on the GPU.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace split_kv
