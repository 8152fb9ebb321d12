// The rule of check.hpp in two halves: what is expected, and the comparison.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/harness/program/verdict.hpp"

namespace flash::reference {

/// u: half the distance from 1 to the next value of O's type; 0 for fp32, whose rounding the rule's
/// 1e-5 covers.
constexpr double unit_roundoff(DType type) {
    return type == DType::fp32 ? 0 : type == DType::fp16 ? 0x1p-11 : 0x1p-8;
}

/// What an output of one problem is compared with. It depends on the inputs alone, so many outputs
/// may share it.
struct Expectation {
    std::vector<double> o, lse;       // the oracle's
    double o_bound = 0;               // for every element of O
    double fp32_sums = 0;             // the part of it that is for scores summed up in fp32
    double rounding = 0;              // and the rest
    std::vector<double> of_e4m3;      // of that type: so much more, for every row
    std::vector<float> v_low, v_high; // (B, H, N_q, d_v): what the row sees of V lies in between
    double average_roundoff = 0, floor = 0; // of eps: 2 u + 2^-16, and what small V may be off by
    std::vector<double> lse_bound;          // for every row
    double rounded_sums = 0;                // by so much more, where outputs sum up rounded P
    bool all_zero = false;     // the baseline's O is zero everywhere, so zeros are a right answer
    std::vector<bool> ignored; // (B, H, N_q): rows that are not compared; empty: every row is

    bool is_ignored(size_t row) const { return !ignored.empty() && ignored[row]; }

    /// For the elements of O in this row.
    double o_bound_of(size_t row) const { return o_bound + (of_e4m3.empty() ? 0 : of_e4m3[row]); }

    /// eps of element i of O.
    double average_error(size_t i) const {
        const float reach = std::max(std::abs(v_low[i]), std::abs(v_high[i]));
        return average_roundoff * static_cast<double>(reach) + floor;
    }
};

/// The first half of check(). `ignored_rows`, empty or one flag per row of LSE, marks rows that the
/// rule leaves out, because their inputs hold NaN or infinity or because a sample is enough. They
/// take no part in any maximum.
Expectation expect(const Problem& problem, const Inputs& inputs,
                   std::vector<bool> ignored_rows = {}, const Progress& progress = {});

/// The second half of check().
Verdict compare(const Problem& problem, const Expectation& expected, const Outputs& outputs);

} // namespace flash::reference
