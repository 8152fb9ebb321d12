// Logits too large or too small for exp: naive_attention fails, all others are right.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>

#include "reference/check.hpp"
#include "steps/tests/attention_data.hpp"

namespace {

using namespace flash::tests;

/// One query against the keys' logits: d = 1, scale = 1, Q = 1, K = the logits. V counts up from 1.
AttentionData with_logits(const std::vector<float>& logits) {
    const auto N = static_cast<int64_t>(logits.size());
    AttentionData data = random_attention({.kv_len = N, .head_dim = 1, .scale = 1}, 1);
    data.Q = {1};
    data.K = logits;
    for (size_t j = 0; j < data.V.size(); ++j) {
        data.V[j] = static_cast<float>(j + 1);
    }
    return data;
}

bool passes(const AttentionData& data) {
    return flash::reference::check(data.problem, data.inputs(), data.outputs(), {}, 0).ok;
}

} // namespace

TEST_CASE("naive_attention is right as long as exp neither overflows nor underflows") {
    AttentionData data = with_logits({80, -80, 79, 0});
    data.run(cpu_rungs()[0].attention);
    CHECK(passes(data));
}

TEST_CASE("naive_attention gives NaN for logits of +-1e4") {
    AttentionData data = with_logits({1e4f, -1e4f});
    data.run(cpu_rungs()[0].attention);
    CHECK(std::isnan(data.O[0]));
    CHECK(data.LSE[0] == INFINITY);
    CHECK_FALSE(passes(data));
}

TEST_CASE("naive_attention loses every key when all logits are far below 0") {
    AttentionData data = with_logits({-1e4f, -1e4f});
    data.run(cpu_rungs()[0].attention);
    CHECK(data.O[0] == 0);
    CHECK(data.LSE[0] == -INFINITY);
    CHECK_FALSE(passes(data));
}

TEST_CASE("safe_softmax to one_pass_softmax are right where naive_attention fails") {
    const auto& rung = cpu_rungs()[GENERATE(1u, 2u, 3u, 4u)];
    INFO(rung.name);

    AttentionData one_winner = with_logits({1e4f, -1e4f});
    one_winner.run(rung.attention);
    CHECK(one_winner.O[0] == 1);
    CHECK(one_winner.LSE[0] == 1e4f);
    CHECK(passes(one_winner));

    AttentionData all_low = with_logits({-1e4f, -1e4f});
    all_low.run(rung.attention);
    CHECK(all_low.O[0] == 1.5f);
    CHECK(passes(all_low));

    // Several tiles; in each row some logits beyond +1e4 and some below -1e4, in any order.
    AttentionData random = random_attention(
        {.heads = 2, .kv_heads = 2, .q_len = 70, .kv_len = 500, .head_dim = 64}, 3, 5e3f);
    random.run(rung.attention);
    CHECK(passes(random));
}
