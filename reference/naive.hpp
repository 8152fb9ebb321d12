// The yardstick: plain unfused attention with the rounding that a kernel of the same type cannot
// avoid.
#pragma once

#include <vector>

#include "common/harness/program/verdict.hpp"

namespace flash::reference {

/// O (B, H, N_q, d_v) as unfused attention computes it in `inputs.dtype`: S = scale * Q K^T
/// accumulated and kept in fp32; P = softmax(S) in fp32, normalised, then rounded to the type; O =
/// P V accumulated in fp32, then rounded to the type. For fp32 nothing is rounded further. A sink
/// is one more score in fp32. A row that sees no key is 0; a row with a score that is not finite is
/// NaN.
///
/// Rows marked in `ignored_rows`, empty or one flag per row of LSE, may be left at 0.
/// S is never rounded to 16 bits: fp16 ends at 65504, and scores before scaling are soon larger
/// than that.
std::vector<float> naive(const Problem& problem, const Inputs& inputs,
                         const Progress& progress = {}, const std::vector<bool>& ignored_rows = {});

} // namespace flash::reference
