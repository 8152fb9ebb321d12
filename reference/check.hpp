// The rule that decides whether a rung's output is correct.
#pragma once

#include "common/harness/check.hpp"

namespace flash::reference {

/// Computes the float64 oracle and the naive same-type baseline for the problem and compares, as follows.
///   O:    max|O - oracle| <= 2 max|naive - oracle| + 2 u max|O| + 2^-20 A max|V| + 1e-5
///   LSE:  |LSE_i - oracle_i| <= tau + 2^-19 A_i, row by row
/// with A_i = scale * max_j sum_x |q_ix k_jx| over the keys that row i sees, A their maximum,
/// u = 0, 2^-11, 2^-8 and tau = 2e-5, 1e-3, 4e-3 for fp32, fp16, bf16.
/// Equal infinities agree; NaN never does; an O that is all zeros where the oracle is not is rejected.
/// Throws std::runtime_error when the baseline itself is not finite.
Verdict check(const Problem& problem, const Inputs& inputs, const Outputs& outputs, const Progress& progress = {});

} // namespace flash::reference
