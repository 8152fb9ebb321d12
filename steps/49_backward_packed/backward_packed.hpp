#pragma once

#include "common/attention.hpp"
#include "common/packed_sequences.hpp"
#include "common/types.hpp"

namespace backward_packed {

inline constexpr int head_dims[] = {64, 128};

/// dQ, dK and dV of every head of p.batch sequences; the pointers are device memory, and the work
/// may still run when this returns.
/// T is flash::Half or flash::Bfloat16. See common/packed_sequences.hpp for shapes and layout: dO
/// and dQ are lines as Q, dK and dV as K. d is one of head_dims.
template <class T>
void attention_backward(const flash::Problem& p, const flash::PackedSequences& line, const T* Q,
                        const T* K, const T* V, const T* O, const float* LSE, const T* dO, T* dQ,
                        T* dK, T* dV, void* workspace);

/// Bytes of `workspace`, device memory that holds LSE and delta of each row, and dQ in fp32. Of the
/// line it asks for the totals alone.
int64_t workspace_bytes(const flash::Problem& p, const flash::PackedSequences& line);

} // namespace backward_packed
