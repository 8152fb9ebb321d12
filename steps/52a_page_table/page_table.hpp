#pragma once

#include "common/attention.hpp"
#include "common/paged_kv.hpp"
#include "common/types.hpp"

namespace page_table {

inline constexpr int head_dims[] = {32, 64, 128};

/// O and LSE of every head; the pointers are device memory, and the work may still run when this
/// returns. The mask of a sequence is aligned with its own last key, and `p.kv_len` is the most
/// keys that any of them may have. Throws Error where page or strides are not what
/// common/paged_kv.hpp asks for.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims.
template <class T>
void attention_paged(const flash::Problem& p, const flash::PagedKV<T>& cache, const T* Q, T* O,
                     float* LSE, void* workspace);

/// The same kernel where K and V are tensors: each sequence has one page, and N_kv keys.
template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace);

/// Bytes of `workspace`, device memory where blocks that share a tile meet. The lengths of
/// sequences do not matter, but the GPU does.
int64_t workspace_bytes(const flash::Problem& p);

} // namespace page_table
