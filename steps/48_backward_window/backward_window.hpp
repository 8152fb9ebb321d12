#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace backward_window {

inline constexpr int head_dims[] = {64, 128};

/// dQ, dK and dV of every head, and dsink; the pointers are device memory, and the work may still
/// run when this returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims. `sink` and `dsink` are (H), or null if the problem has no sink; LSE includes it.
template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V,
                        const float* sink, const T* O, const float* LSE, const T* dO, T* dQ, T* dK,
                        T* dV, float* dsink, void* workspace);

/// Bytes of `workspace`, device memory that holds LSE and delta of each row, and dQ in fp32.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace backward_window
