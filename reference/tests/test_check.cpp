// The rule: what it accepts, what it rejects, and where exactly the line is.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "reference/check.hpp"
#include "reference/expectation.hpp"

namespace {

using namespace flash;
using reference::Expectation;

constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

// A problem, its inputs, and the oracle's answer as floats: the best output there can be.
struct Example {
    Problem problem;
    DType dtype;
    std::vector<float> q, k, v;
    Expectation expected;
    std::vector<float> o, lse;

    Example(const Problem& p, DType type, float v_scale = 1, std::vector<bool> ignored = {})
        : problem(p), dtype(type), q(normal(p.q_size(), 1)), k(normal(p.kv_size(), 2)),
          v(normal(p.kv_size(), 3)) {
        for (float& x : v) {
            x = round_to(type, v_scale * x);
        }
        expected = reference::expect(p, inputs(), std::move(ignored));
        o.assign(expected.o.begin(), expected.o.end());
        lse.assign(expected.lse.begin(), expected.lse.end());
    }

    std::vector<float> normal(int64_t size, uint64_t seed) const {
        std::mt19937_64 generator(seed);
        std::normal_distribution<float> distribution;
        std::vector<float> values(static_cast<size_t>(size));
        std::ranges::generate(values, [&] { return round_to(dtype, distribution(generator)); });
        return values;
    }
    Inputs inputs() const { return {dtype, q, k, v}; }
    Verdict judge() const { return reference::compare(problem, expected, {o, lse}); }
};

// Two batches of two heads, five queries, three keys, causal: queries 0 and 1 see nothing.
const Problem small{.batch = 2,
                    .heads = 2,
                    .kv_heads = 1,
                    .q_len = 5,
                    .kv_len = 3,
                    .head_dim = 4,
                    .scale = 0.5f,
                    .causal = true};

} // namespace

TEST_CASE("check accepts the oracle's own answer with its infinities") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        const Example example(small, type);
        const Verdict verdict = example.judge();
        CHECK(verdict.ok);
        CHECK(verdict.message.empty());
        CHECK(verdict.o_error < 1e-6);
        CHECK(verdict.lse_error < 1e-6);
        CHECK(verdict.o_bound == example.expected.o_bound);
        CHECK(example.lse[0] == -infinity);

        const Verdict whole =
            reference::check(small, example.inputs(), {example.o, example.lse}, {}, 0);
        CHECK(whole.ok);
        // Eigen's sums depend on alignment, in the last bit
        CHECK(std::abs(whole.o_bound - verdict.o_bound) < 1e-12);
    }
}

TEST_CASE("the bounds are those of the rule") {
    // One key, so that O = V = 3 and the baseline is exact. A = 0.5 * |1*2 + 1*(-2)| by absolute
    // values = 2.
    const Problem p{.head_dim = 2, .scale = 0.5f};
    const std::vector<float> q = {1, 1}, k = {2, -2}, v = {3, -1};
    const auto bounds = [&](DType type) { return reference::expect(p, {type, q, k, v}); };
    const double a_term = 0x1p-20 * 2 * 3;
    CHECK(bounds(DType::fp32).o_bound == a_term + (1e-5 + 0x1p-126));
    CHECK(bounds(DType::fp16).o_bound == 2 * 0x1p-11 * 3 + a_term + (1e-5 + 0x1p-24));
    CHECK(bounds(DType::bf16).o_bound == 2 * 0x1p-8 * 3 + a_term + (1e-5 + 0x1p-126));
    CHECK(bounds(DType::fp32).lse_bound == std::vector<double>{2e-5 + 0x1p-19 * 2});
    for (const DType type : {DType::fp16, DType::bf16}) { // exact sums are as exact in any type
        CHECK(bounds(type).lse_bound == bounds(DType::fp32).lse_bound);
    }
    CHECK(bounds(DType::fp32).rounded_sums == 0);
    CHECK(bounds(DType::fp16).rounded_sums == 0x1p-11 + 0x1p-25); // one key
    CHECK(bounds(DType::bf16).rounded_sums == 0x1p-8);

    // Three equal keys and V = 1, 2, 4 in fp16: the baseline gives 2.33203125 (see test_naive) for
    // 7/3.
    const Problem three{.kv_len = 3, .head_dim = 1, .scale = 1};
    const Expectation e =
        reference::expect(three, {DType::fp16, std::vector<float>{1}, std::vector<float>{2, 2, 2},
                                  std::vector<float>{1, 2, 4}});
    const double bound =
        2 * (7.0 / 3 - 2.33203125) + 2 * 0x1p-11 * 7 / 3 + 0x1p-20 * 2 * 4 + 1e-5 + 0x1p-24;
    CHECK(std::abs(e.o_bound - bound) < 1e-14);

    // A_i counts the keys that row i sees: key 1 is 100 times larger, and hidden from row 0.
    const Problem causal{.q_len = 2, .kv_len = 2, .head_dim = 1, .scale = 1, .causal = true};
    const Expectation rows =
        reference::expect(causal, {DType::fp32, std::vector<float>{1, -1},
                                   std::vector<float>{1, 100}, std::vector<float>{1, 1}});
    CHECK(rows.lse_bound == std::vector<double>{2e-5 + 0x1p-19 * 1, 2e-5 + 0x1p-19 * 100});
}

TEST_CASE("with a window O lies between what its row sees of V, and with a sink 0 is one of them") {
    // Rows see keys 0, 0 to 1 and 1 to 2, all with the score 0.
    Problem p{.q_len = 3, .kv_len = 3, .head_dim = 1, .scale = 1, .causal = true, .window = 2};
    const std::vector<float> zeros(3), v = {5, 1, 2}, sink = {1000};
    Inputs inputs{DType::fp32, zeros, zeros, v};
    const Expectation window = reference::expect(p, inputs);
    CHECK(window.v_low == std::vector<float>{5, 1, 1});
    CHECK(window.v_high == std::vector<float>{5, 5, 2});
    CHECK(window.o == std::vector<double>{5, 3, 1.5});
    p.sink = true;
    inputs.sink = sink;
    const Expectation both = reference::expect(p, inputs);
    CHECK(both.v_low == std::vector<float>{0, 0, 0});
    CHECK(both.v_high == std::vector<float>{5, 5, 2});
    // the sink is nearly all of LSE, which fp32 rounds
    CHECK(both.lse_bound == std::vector<double>(3, 2e-5 + 0x1p-22 * 1000));
    CHECK(reference::compare(p, both, {zeros, std::vector<float>(3, 1000)}).ok);
    CHECK_FALSE(reference::compare(p, both, {zeros, std::vector<float>(3, 1000.001f)}).ok);
}

TEST_CASE("an error just inside the bound passes and just outside fails") {
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const double sign : {-1.0, 1.0}) {
            const Example example(small, type);
            for (const size_t i : {size_t{16}, example.o.size() - 1}) { // rows that see three keys
                Example inside = example, outside = example;
                inside.o[i] = static_cast<float>(example.expected.o[i] +
                                                 sign * 0.99 * example.expected.o_bound);
                outside.o[i] = static_cast<float>(example.expected.o[i] +
                                                  sign * 1.01 * example.expected.o_bound);
                CHECK(inside.judge().ok);
                CHECK_FALSE(outside.judge().ok);
            }
            for (const size_t i : {size_t{2}, example.lse.size() - 1}) {
                Example inside = example, outside = example;
                inside.lse[i] = static_cast<float>(example.expected.lse[i] +
                                                   sign * 0.98 * example.expected.lse_bound[i]);
                outside.lse[i] = static_cast<float>(example.expected.lse[i] +
                                                    sign * 1.02 * example.expected.lse_bound[i]);
                CHECK(inside.judge().ok);
                CHECK_FALSE(outside.judge().ok);
            }
        }
    }
}

TEST_CASE("O must lie within what its row sees of V, however large the scores are") {
    // Scores of 1e9, which fp32 knows to a hundred: the first bound allows anything.
    Problem p = small;
    p.scale = 1e9f;
    Example example(p, DType::fp32);
    CHECK(example.expected.o_bound > 1000);
    CHECK(example.judge().ok);
    CHECK(example.judge().says_little);
    CHECK(example.judge().o_bound < 10);                 // and what is said is what holds
    const size_t blind = 4, first = 2 * 4, last = 4 * 4; // rows that see none, one and three keys
    for (const size_t i : {blind, first, last}) {
        for (const float sign : {-1.0f, 1.0f}) {
            Example outside = example, inside = example;
            const float end = sign < 0 ? example.expected.v_low[i] : example.expected.v_high[i];
            const auto eps = static_cast<float>(example.expected.average_error(i));
            inside.o[i] = end + sign * 0.9f * eps;
            outside.o[i] = end + sign * 1.2f * eps + sign * 1e-6f;
            CHECK(inside.judge().ok);
            CHECK_FALSE(outside.judge().ok);
            CHECK(outside.judge().message.find("what the row sees of V is from") !=
                  std::string::npos);
        }
    }
    CHECK(example.expected.v_low[first] == example.v[0]); // the first key alone
    CHECK(example.expected.v_high[first] == example.v[0]);
    CHECK_FALSE(Example(small, DType::fp32).judge().says_little);
}

TEST_CASE("LSE of rounded sums may be off by the rounding, and that of others may not") {
    for (const DType type : {DType::fp16, DType::bf16}) {
        const Example example(small, type);
        std::vector<float> lse = example.lse;
        lse[4] += static_cast<float>(0.9 * reference::unit_roundoff(type));
        const auto judged = [&](bool rounded_sums) {
            return reference::compare(small, example.expected,
                                      {.o = example.o, .lse = lse, .rounded_sums = rounded_sums})
                .ok;
        };
        CHECK(judged(true));
        CHECK_FALSE(judged(false));
        lse[4] += static_cast<float>(0.3 * reference::unit_roundoff(type));
        CHECK_FALSE(judged(true));
    }
}

TEST_CASE("NaN is rejected anywhere") {
    const Example example(small, DType::fp32);
    for (size_t i = 0; i < example.o.size(); ++i) {
        Example spoilt = example;
        spoilt.o[i] = quiet_nan;
        CHECK_FALSE(spoilt.judge().ok);
        CHECK(std::isnan(spoilt.judge().o_error));
    }
    for (size_t i = 0; i < example.lse.size(); ++i) {
        Example spoilt = example;
        spoilt.lse[i] = quiet_nan;
        CHECK_FALSE(spoilt.judge().ok);
        CHECK(std::isnan(spoilt.judge().lse_error));
    }
}

TEST_CASE("infinity agrees with the same infinity only") {
    const Example example(small, DType::fp32);
    for (const size_t row : {0, 1, 2, 4}) { // rows 0 and 1 see nothing: LSE = -inf
        const bool blind = row < 2;
        for (const float wrong :
             {infinity, -infinity, -1e30f, 0.0f, std::numeric_limits<float>::lowest()}) {
            CAPTURE(row, wrong);
            Example spoilt = example;
            spoilt.lse[row] = wrong;
            CHECK(spoilt.judge().ok == (blind && wrong == -infinity));
        }
    }
    for (const float wrong : {infinity, -infinity}) {
        Example spoilt = example;
        spoilt.o[9] = wrong;
        CHECK_FALSE(spoilt.judge().ok);
    }
}

TEST_CASE("an O of zeros is rejected unless zeros are right") {
    const auto zeros_pass = [](Example example) {
        std::ranges::fill(example.o, 0.0f);
        return example.judge().ok;
    };
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        CHECK_FALSE(zeros_pass(Example(small, type)));
        CHECK(zeros_pass(Example(small, type, 0))); // V = 0
    }
    // V so small that the bound's 1e-5 alone would let zeros pass. -0 is zero, too.
    Example tiny(small, DType::fp32, 1e-7f);
    CHECK(zeros_pass(tiny) == false);
    std::ranges::fill(tiny.o, -0.0f);
    CHECK_FALSE(tiny.judge().ok);
    // The smallest fp16 number, averaged with zeros, rounds to zero in any kernel.
    const Problem three{.kv_len = 3, .head_dim = 1, .scale = 1};
    const Expectation e =
        reference::expect(three, {DType::fp16, std::vector<float>{1}, std::vector<float>{2, 2, 2},
                                  std::vector<float>{0x1p-24f, 0, 0}});
    CHECK(e.o[0] > 0);
    CHECK(
        reference::compare(
            three, e, {std::vector<float>{0}, std::vector<float>(1, static_cast<float>(e.lse[0]))})
            .ok);
}

TEST_CASE("ignored rows take no part") {
    std::vector<bool> ignored(static_cast<size_t>(small.lse_size()));
    const size_t row = 13; // b = 1, h = 0, i = 3
    ignored[row] = true;

    Example spoilt(small, DType::fp16);
    spoilt.q[row * 4] = quiet_nan;
    // the baseline is NaN
    CHECK_THROWS_AS(reference::expect(small, spoilt.inputs()), std::runtime_error);
    spoilt.expected = reference::expect(small, spoilt.inputs(), ignored);
    std::fill_n(spoilt.o.begin() + row * 4, 4, quiet_nan);
    spoilt.lse[row] = quiet_nan;
    CHECK(spoilt.judge().ok);
    spoilt.o[row * 4 - 1] = quiet_nan;
    CHECK_FALSE(spoilt.judge().ok);

    // A larger row that is ignored changes no bound.
    Example loud(small, DType::fp32);
    loud.q[row * 4] = 1e6f;
    const Expectation quiet = reference::expect(small, loud.inputs(), ignored);
    const Expectation heard = reference::expect(small, loud.inputs());
    CHECK(quiet.o_bound < 1e-4);
    CHECK(heard.o_bound > 0.1);
}

TEST_CASE("a reference that is not finite is an error and no verdict") {
    Example example(small, DType::fp32);
    example.v[1] = infinity;
    CHECK_THROWS_AS(reference::check(small, example.inputs(), {example.o, example.lse}, {}, 0),
                    std::runtime_error);
    example.v[1] = 0;
    std::ranges::fill(example.q, 1e20f);
    std::ranges::fill(example.k, 1e20f); // S overflows fp32, though not fp64
    CHECK_THROWS_AS(reference::check(small, example.inputs(), {example.o, example.lse}, {}, 0),
                    std::runtime_error);
    CHECK_THROWS_AS(reference::compare(small, example.expected, {example.lse, example.lse}),
                    std::runtime_error);
}

TEST_CASE("the message says where and what and how many") {
    Example example(small, DType::fp32);
    example.o[(13 * 4) + 2] = 7;
    example.o[(18 * 4) + 1] = -1000;
    example.lse[13] = 8;
    const std::string message = example.judge().message;
    CAPTURE(message);
    CHECK(message.find("O at (b=1, h=0, i=3, x=2) is 7, expected ") == 0);
    CHECK(message.find("; 2 of 80 are wrong, worst: O at (b=1, h=1, i=3, x=1) is -1000,") !=
          std::string::npos);
    CHECK(message.find("\nLSE at (b=1, h=0, i=3) is 8, expected ") != std::string::npos);
    CHECK(message.find("; 1 of 20 are wrong") != std::string::npos);
    CHECK(std::abs(example.judge().o_error - 1000) < 10);
}
