// The naive baseline rounds where a kernel of its type rounds, and nowhere else. Worked by hand.
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/naive.hpp"

namespace {

using namespace flash;

std::vector<float> naive(const Problem& p, DType type, std::vector<float> q, std::vector<float> k,
                         std::vector<float> v) {
    return reference::naive(p, {type, q, k, v});
}

} // namespace

TEST_CASE("naive rounds P and O to the type") {
    // Three equal keys: P = 1/3, which is 0.333251953125 in fp16 and 0.333984375 in bf16.
    const Problem p{.kv_len = 3, .head_dim = 1, .scale = 1};
    const std::vector<float> q = {1}, k = {2, 2, 2}, v = {1, 2, 4};
    const float o = naive(p, DType::fp32, q, k, v)[0];
    CHECK(std::abs(o - 7.0f / 3) < 1e-6f);
    // 7 * 0.333251953125 = 2.332763671875; fp16 steps by 2^-9 there.
    CHECK(naive(p, DType::fp16, q, k, v)[0] == 2.33203125f);
    // 7 * 0.333984375 = 2.337890625; bf16 steps by 2^-6 there.
    CHECK(naive(p, DType::bf16, q, k, v)[0] == 2.34375f);
    // With V = 1, 2, 3.25 P's rounding alone decides: 6.25 * 0.333984375 = 2.087 is nearer to
    // 2.09375 (unrounded: 2.083).
    CHECK(naive(p, DType::bf16, q, k, {1, 2, 3.25f})[0] == 2.09375f);
}

TEST_CASE("naive keeps S in fp32") {
    // Scores 60000 and 60001: one and the same number in fp16 and in bf16. As it is, P = 0.269,
    // 0.731.
    const Problem p{.kv_len = 2, .head_dim = 2, .scale = 1};
    const std::vector<float> q = {250, 1}, k = {240, 0, 240, 1}, v = {0, 0, 1, 0};
    const float exact = 1 / (1 + std::exp(-1.0f));
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        CAPTURE(dtype_name(type));
        CHECK(std::abs(naive(p, type, q, k, v)[0] - exact) < 0.002f);
    }
    // Scores before scaling beyond 65504 are no trouble either.
    const Problem scaled{.kv_len = 2, .head_dim = 2, .scale = 0.5f};
    CHECK(std::isfinite(naive(scaled, DType::fp16, {500, 1}, {400, 0, 400, 1}, v)[0]));
}

TEST_CASE("naive: mask and grouped heads and rows that see nothing and NaN") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    // All scores are equal, so each row is the mean of the V it sees.
    const Problem causal{.q_len = 3, .kv_len = 2, .head_dim = 1, .scale = 1, .causal = true};
    CHECK(naive(causal, DType::fp32, {0, 0, 0}, {1, 1}, {2, 4}) == std::vector<float>{0, 2, 3});

    const Problem grouped{.batch = 2, .heads = 4, .kv_heads = 2, .head_dim = 1, .scale = 1};
    CHECK(naive(grouped, DType::fp32, std::vector<float>(8), {0, 0, 0, 0}, {1, 2, 3, 4}) ==
          std::vector<float>{1, 1, 2, 2, 3, 3, 4, 4});

    const std::vector<float> o = naive(causal, DType::fp32, {nan, 0, nan}, {1, 1}, {2, 4});
    CHECK(o[0] == 0); // sees nothing, not even its own NaN
    CHECK(o[1] == 2);
    CHECK(std::isnan(o[2]));
}
