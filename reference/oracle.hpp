// The truth: attention in float64, straight from its definition. Shares no code with any rung.
#pragma once

#include <vector>

#include "common/harness/program/verdict.hpp"

namespace flash::reference {

struct Exact {
    std::vector<double> o;   // (B, H, N_q, d_v)
    std::vector<double> lse; // (B, H, N_q), natural log
};

/// O and LSE in float64. A row that sees no key has O = 0 and LSE = -inf, or the sink. A row with a
/// score that is NaN or +inf (NaN or infinity in its row of Q, or in K) comes out as NaN: exp(inf -
/// inf) has no value. Rows marked in `ignored_rows`, empty or one flag per row of LSE, may be left
/// at 0. V must be finite, except in heads whose results nobody reads: a masked key counts as 0 *
/// V, and 0 * NaN is NaN.
Exact oracle(const Problem& problem, const Inputs& inputs, const Progress& progress = {},
             const std::vector<bool>& ignored_rows = {});

} // namespace flash::reference
