#pragma once

#include "common/attention.hpp"

namespace column_order {

/// The two products of cuda_naive with threadIdx.x running along the queries instead of the keys or
/// the head dim: what a beginner may write, and what coalescing is about. P is taken to be S, so O
/// is no attention. One head, full.
void products(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
              float* LSE, void* workspace);

} // namespace column_order
