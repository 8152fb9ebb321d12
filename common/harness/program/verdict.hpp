// What "correct" means to the harness: a verdict on one output. The verdict itself is made in
// reference/.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/harness/program/described.hpp"
#include "common/types.hpp"

namespace flash {

/// Q, K, V on the host, as floats that are exactly representable in `dtype`. A backward rung also
/// gets O and dO, in the same type, and LSE. The sink, (H) in fp32, is there if the problem has
/// one.
struct Inputs {
    DType dtype = DType::fp32;
    std::span<const float> q, k, v;
    std::span<const float> o = {}, lse = {}, d_o = {};
    std::span<const float> sink = {};
};

/// O and LSE on the host, or dQ, dK and dV of a backward rung, with a sink dsink; converted from
/// the rung's type, which is exact.
struct Outputs {
    std::span<const float> o = {}, lse = {};
    std::span<const float> d_q = {}, d_k = {}, d_v = {}, d_sink = {};
    bool rounded_sums = false; // ForwardRung::rounded_sums
};

/// max |X - oracle| of one gradient, and what the rule allows.
struct GradientError {
    double error = 0, bound = 0;
};

struct Verdict {
    bool ok = false;
    double o_error = 0, o_bound = 0;     // max |O - oracle| and what the rule allows
    double lse_error = 0, lse_bound = 0; // of the row with the largest error / bound
    // The bound on O is wider than V is: the scores are so large that fp32 does not tell keys
    // apart.
    bool says_little = false;
    GradientError d_q = {}, d_k = {}, d_v = {}; // of a backward rung, in place of O and LSE
    std::optional<GradientError> d_sink = {};   // if there is a sink
    int64_t rows = 0;                           // how many of the B H N_q rows were compared
    std::string message; // when not ok: where the first violation is and how large

    /// Adds the verdict on O and LSE of a part of the problem: of errors, those nearest to their
    /// bounds remain, or above them; of messages the first, behind `where`.
    void add(const Verdict& part, const std::string& where);
};

/// Called with the fraction done, 0 to 1, from any thread, now and then.
struct Progress : std::function<void(double)> {
    using function::function;
};

/// What a ForwardReference gives.
struct ForwardResult {
    std::vector<float> o, lse;
};

} // namespace flash
