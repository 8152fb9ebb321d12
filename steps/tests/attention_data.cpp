#include "steps/tests/attention_data.hpp"

#include <algorithm>
#include <limits>

#include "common/harness/program/random.hpp"
#include "steps/01_naive_attention/naive_attention.hpp"
#include "steps/02_safe_softmax/safe_softmax.hpp"
#include "steps/03_three_pass_softmax/three_pass_softmax.hpp"
#include "steps/04_two_pass_softmax/two_pass_softmax.hpp"
#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"

namespace flash::tests {

void AttentionData::run(Forward<float> attention) {
    constexpr float poison = std::numeric_limits<float>::quiet_NaN();
    O.assign(static_cast<size_t>(problem.q_size()), poison);
    LSE.assign(static_cast<size_t>(problem.lse_size()), poison);
    attention(problem, Q.data(), K.data(), V.data(), O.data(), LSE.data(), nullptr);
}

AttentionData random_attention(const Problem& problem, uint64_t seed, float q_factor) {
    NormalGenerator normal(seed);
    const auto fill = [&](int64_t size, float factor) {
        std::vector<float> values(static_cast<size_t>(size));
        std::ranges::generate(values, [&] { return factor * normal(); });
        return values;
    };
    AttentionData data{.problem = problem, .Q = {}, .K = {}, .V = {}, .O = {}, .LSE = {}};
    data.Q = fill(problem.q_size(), q_factor);
    data.K = fill(problem.kv_size(), 1);
    data.V = fill(problem.kv_size(), 1);
    data.O.resize(static_cast<size_t>(problem.q_size()));
    data.LSE.resize(static_cast<size_t>(problem.lse_size()));
    return data;
}

const std::vector<NamedRung>& cpu_rungs() {
    static const std::vector<NamedRung> rungs = {
        {"01_naive_attention", naive_attention::attention},
        {"02_safe_softmax", safe_softmax::attention},
        {"03_three_pass_softmax", three_pass_softmax::attention},
        {"04_two_pass_softmax", two_pass_softmax::attention},
        {"05_one_pass_softmax", one_pass_softmax::attention}};
    return rungs;
}

} // namespace flash::tests
