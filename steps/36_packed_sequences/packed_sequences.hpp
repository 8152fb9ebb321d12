#pragma once

#include "common/attention.hpp"
#include "common/packed_sequences.hpp"
#include "common/types.hpp"

namespace packed_sequences {

inline constexpr int head_dims[] = {64, 128, 256};

/// O and LSE of every head of p.batch sequences; the pointers are device memory, and the work may
/// still run when this returns. p.q_len and p.kv_len are bounds of the lengths.
/// T is flash::Half or flash::Bfloat16. See common/packed_sequences.hpp for shapes and layout. d is
/// one of head_dims.
template <class T>
void attention(const flash::Problem& p, const flash::PackedSequences& line, const T* Q, const T* K,
               const T* V, T* O, float* LSE, void* workspace);

/// Bytes of `workspace`, device memory that holds the counter from which blocks draw tiles.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace packed_sequences
