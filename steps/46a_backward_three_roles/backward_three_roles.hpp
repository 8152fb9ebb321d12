#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace backward_three_roles {

inline constexpr int head_dims[] = {256};

/// dQ, dK and dV of every head; the pointers are device memory, and the work may still run when
/// this returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims.
template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace);

/// Bytes of `workspace`, device memory that holds LSE and delta of each row, and dQ in fp32.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace backward_three_roles
