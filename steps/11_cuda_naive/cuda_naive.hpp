#pragma once

#include "common/attention.hpp"

namespace cuda_naive {

inline constexpr int head_dims[] = {32, 64, 128};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// See common/attention.hpp for shapes and layout. d is one of head_dims.
void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE, void* workspace);

/// Bytes of `workspace`, device memory that holds S, and then P: N_q x N_kv floats a head.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace cuda_naive
