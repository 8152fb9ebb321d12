// One attention problem with its tensors, and the rungs to run on it.
#pragma once

#include <string>
#include <vector>

#include "common/harness/program/verdict.hpp"
#include "common/rung_function.hpp"

namespace flash::tests {

/// Tensors of one problem, on the host.
struct AttentionData {
    Problem problem;
    std::vector<float> Q, K, V, O, LSE;

    Inputs inputs() const { return {DType::fp32, Q, K, V}; }
    Outputs outputs() const { return {O, LSE}; }

    /// Fills O and LSE, which held NaN before.
    void run(Forward<float> attention);
};

/// Q, K and V are N(0, 1), Q then multiplied by `q_factor`. O and LSE are allocated.
AttentionData random_attention(const Problem& problem, uint64_t seed, float q_factor = 1);

struct NamedRung {
    std::string name;
    Forward<float> attention;
};

/// naive_attention to one_pass_softmax, in this order.
const std::vector<NamedRung>& cpu_rungs();

} // namespace flash::tests
