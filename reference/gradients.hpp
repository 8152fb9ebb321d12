// The backward pass: the truth, the yardstick and the rule. Shares no code with any rung.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/program/verdict.hpp"

namespace flash::reference {

/// dQ (B, H, N_q, d), dK and dV (B, H_kv, N_kv, d), as numbers of type T; dsink (H), empty without
/// a sink.
template <class T> struct Gradients {
    std::vector<T> d_q, d_k, d_v, d_sink = {};
};

/// In float64, from the definition, with S, P, dP and dS whole in every row:
///   S = scale Q K^T,  P = softmax(S),  dP = dO V^T,  dS = (the derivative of softmax) dP,
///   dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO
/// A sink is one more column of S, P and dS, and of dP, where it is 0; dsink is the sum of its
/// column of dS. A row that sees no key adds nothing, and its dQ is 0. Neither O nor LSE of
/// `inputs` is looked at. K/V heads marked in `ignored_heads`, empty or one flag for each of the B
/// H_kv, are left at 0, with the dQ of the query heads that read them, and the dsink of those that
/// do so in any batch entry. V and dO must be finite in all others.
Gradients<double> oracle_gradients(const Problem& problem, const Inputs& inputs,
                                   const Progress& progress = {},
                                   const std::vector<bool>& ignored_heads = {});

/// The baseline, and how much of its and of any kernel's error comes from the fp32 sums of S and
/// dP: for dQ, dK and dV, the most that P and dS move the gradient when each S_ij is wrong by 2^-20
/// A_i and each dP_ij - delta_i by 2^-20 D_i. A_i = scale max_j sum_x |q_ix k_jx|, D_i = max_j
/// sum_x |dO_ix v_jx|, over the keys that row i sees. From A_i = 2^20 on no digit of S_ij is known,
/// and P_ij may be anything from 0 to 1.
/// For dsink, 2^-20 times the largest sum over rows of p_i (D_i + |delta_i| (1 + |sink - LSE_i|)),
/// where p_i = exp(sink - LSE_i) is the sink's weight: delta_i may be wrong by 2^-20 D_i, p_i by
/// 2^-20 of itself and of the exponent, and the sum by 2^-20 of the sizes that are added up.
struct Yardstick {
    Gradients<float> naive;
    std::array<double, 4> fp32_sums{};
};

/// As unfused attention computes them in `inputs.dtype`, from what a rung is given: P = exp(S -
/// LSE), and delta, the row sums of dO O, with O rounded to the type and LSE to fp32. All products
/// are accumulated in fp32; P and dS are rounded to the type, and so are the results; S and dP stay
/// in fp32.
Yardstick naive_gradients(const Problem& problem, const Inputs& inputs,
                          const ForwardResult& forward, const Progress& progress = {},
                          const std::vector<bool>& ignored_heads = {});

/// What the gradients of one problem are compared with; it depends on the inputs alone, O and LSE
/// among them.
struct ExpectedGradients {
    Gradients<double> exact;
    std::array<double, 4> bounds{}; // for every element of dQ, dK, dV and dsink
    std::array<bool, 4> all_zero{}; // the baseline is no better than zeros
    // one flag for each of the B H_kv K/V heads; empty: every one is compared
    std::vector<bool> ignored_heads;
};

/// The rule, for X = Q, K, V and the sink alike, with u = 0, 2^-11, 2^-8 for fp32, fp16, bf16, and
/// 0 for dsink, which is fp32 always:
///   max|dX - oracle| <= 3 max|naive - oracle| + 2 u max|oracle| + (the yardstick's fp32_sums) +
///   1e-5
/// Where one key has all the weight, dP - delta is 0, and a rung gives the rounding of the two
/// sums, added up over all rows. Tensor cores round them in other ways than the baseline, so its
/// error says nothing about it; the third term does. Elsewhere it is small.
/// The baseline gets O and LSE of `inputs`, where they are: those that the rung was given. A
/// forward kernel rounds P before O, so its delta is off by more than that of an O that was rounded
/// once, and with few rows one delta decides. Where `inputs` has none, forward() makes them. Throws
/// std::runtime_error when the baseline itself is not finite.
ExpectedGradients expect_gradients(const Problem& problem, const Inputs& inputs,
                                   std::vector<bool> ignored_heads = {},
                                   const Progress& progress = {});

/// Empty, or how O and LSE of `inputs` break the rule for O and LSE (check.hpp, with rounded_sums),
/// in about `rows_of_head` rows of each head, or in all with 0. Whoever brings an O must ask: the
/// baseline, which gets it too, forgives what follows from a wrong one.
std::string wrong_forward(const Problem& problem, const Inputs& inputs, int64_t rows_of_head);

/// NaN and infinity never agree; a gradient that is all zeros where the baseline is better than
/// zeros is rejected.
Verdict compare_gradients(const Problem& problem, const ExpectedGradients& expected,
                          const Outputs& outputs);

} // namespace flash::reference
