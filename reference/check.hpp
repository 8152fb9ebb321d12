// The rules that decide whether a rung's output is correct, as its main.cpp passes them on. In
// halves, for many outputs of one problem: expectation.hpp, gradients.hpp.
#pragma once

#include "common/harness/program/described.hpp"

namespace flash::reference {

/// Computes the float64 oracle and the naive same-type baseline for the problem and compares, as
/// follows.
///   O:    max|O - oracle| <= 2 max|naive - oracle| + 2 u max|oracle| + 2^-20 A max|V| + floor
///         min_j V_jx - eps_ix <= O_ix <= max_j V_jx + eps_ix, over the keys that row i sees
///   LSE:  |LSE_i - oracle_i| <= tau + 2^-19 A_i, row by row; with a sink 2^-22 |oracle_i| more
/// with A_i = scale * max_j sum_x |q_ix k_jx| over the keys that row i sees, A their maximum, and
/// u = 0, 2^-11, 2^-8 for fp32, fp16, bf16.
/// Of e4m3, with O in bf16, O_i may be off by (2^-4 + c A_i) max|V| sqrt(sum_j P_ij^2) more, and
/// LSE_i by c A_i in place of 2^-19 A_i. P is rounded to e4m3, which changes a weight by up to 2^-4
/// of itself; and scores come out of an accumulator with 13 bits behind the point, which cuts each
/// of their d products by half of its last bit on average, 2^-14 of the sum so far, and that is
/// half of the whole: c = d 2^-15. What changes all weights alike leaves O as it is, and errors
/// that are independent of each other add up as their squares do. floor = 1e-5 min(1, max|V|), and
/// the smallest numbers of the type, which are coarse. The second line of O holds whatever the
/// scores are, because O is an average of V, and of 0 if there is a sink: eps_ix = (2 u + 2^-16)
/// max_j |V_jx| + floor, for the rounding of P and of O, and for fp32 sums. tau = 2e-5. Of outputs
/// that say rounded_sums it is u + N_kv 2^-25 more: P is off by u of itself, and in fp16 a small
/// one by 2^-25, where the largest is 1. Equal infinities agree; NaN never does; an O that is all
/// zeros where the baseline is not is rejected. With `rows_of_head` above 0 the rule is applied to
/// a sample of about that many rows of each head (sample.hpp). Throws std::runtime_error when the
/// baseline itself is not finite.
Verdict check(const Problem& problem, const Inputs& inputs, const Outputs& outputs,
              const Progress& progress, int64_t rows_of_head);

/// The same of gradients, by the rule in gradients.hpp. With `rows_of_head` above 0 whole K/V
/// heads, at least one, are compared, such that about as many rows take part: dK needs all queries
/// of its head.
Verdict check_gradients(const Problem& problem, const Inputs& inputs, const Outputs& outputs,
                        const Progress& progress, int64_t rows_of_head);

/// O of the oracle, rounded to the inputs' type, and its LSE: what a backward rung is given.
ForwardResult forward(const Problem& problem, const Inputs& inputs, const Progress& progress);

} // namespace flash::reference
