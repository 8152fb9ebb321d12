#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace backward_one_kernel {

inline constexpr int head_dims[] = {32, 64, 128};

/// dQ, dK and dV of every head; the pointers are device memory, and the work may still run when
/// this returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims. dK and dV are the same bits in every run, dQ is not: its parts are added up in the
/// order in which blocks run.
template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace);

/// Bytes of `workspace`, device memory that holds dQ in fp32, and LSE and delta of each row.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace backward_one_kernel
