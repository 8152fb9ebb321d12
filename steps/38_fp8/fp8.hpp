#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace fp8 {

inline constexpr int head_dims[] = {64, 128, 256};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns.
/// Scales are finite and above 0. See common/attention.hpp for shapes and layout. d is one of
/// head_dims.
void attention(const flash::Problem& p, const flash::E4m3* Q, const flash::E4m3* K,
               const flash::E4m3* V, const float* q_scale, const float* k_scale,
               const float* v_scale, flash::Bfloat16* O, float* LSE, void* workspace);

/// Bytes of `workspace`, device memory that holds the counter from which blocks draw tiles.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace fp8
