// The oracle of the backward pass against PyTorch's gradients in float64 and against finite
// differences, and the rule.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/harness/files/safetensors.hpp"
#include "reference/check.hpp"
#include "reference/gradients.hpp"
#include "reference/oracle.hpp"

namespace {

using namespace flash;
using reference::Gradients;

std::vector<float> normal(int64_t size, uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> distribution;
    std::vector<float> values(static_cast<size_t>(size));
    std::ranges::generate(values, [&] { return distribution(generator); });
    return values;
}

struct Tensors {
    std::vector<float> q, k, v, d_o, sink;
    explicit Tensors(const Problem& p, uint64_t seed = 0)
        : q(normal(p.q_size(), seed + 1)), k(normal(p.kv_size(), seed + 2)),
          v(normal(p.kv_size(), seed + 3)), d_o(normal(p.q_size(), seed + 4)),
          sink(normal(p.sink ? p.heads : 0, seed + 5)) {}
    Inputs view(DType dtype = DType::fp32) const {
        return {.dtype = dtype, .q = q, .k = k, .v = v, .d_o = d_o, .sink = sink};
    }
    void round(DType dtype) {
        for (std::vector<float>* tensor : {&q, &k, &v, &d_o}) {
            std::ranges::transform(*tensor, tensor->begin(),
                                   [&](float x) { return round_to(dtype, x); });
        }
    }
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(a[i] - b[i]);
        largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                         : std::max(largest, difference);
    }
    return largest;
}

double largest(const std::vector<double>& values) {
    return values.empty() ? 0 : std::abs(*std::ranges::max_element(values, {}, [](double x) {
        return std::abs(x);
    }));
}

/// Rounded, as a rung of the type would give them.
Gradients<float> rounded(const Gradients<double>& exact, DType dtype) {
    const auto round = [&](const std::vector<double>& values) {
        std::vector<float> result(values.size());
        std::ranges::transform(values, result.begin(),
                               [&](double x) { return round_to(dtype, static_cast<float>(x)); });
        return result;
    };
    return {round(exact.d_q),
            round(exact.d_k),
            round(exact.d_v),
            {exact.d_sink.begin(), exact.d_sink.end()}};
}

Outputs view(const Gradients<float>& g) {
    return {.d_q = g.d_q, .d_k = g.d_k, .d_v = g.d_v, .d_sink = g.d_sink};
}

/// O and LSE as a forward kernel has them: P, relative to the row's largest, is rounded before P V.
ForwardResult fused_forward(const Problem& p, const Inputs& inputs) {
    ForwardResult result{std::vector<float>(inputs.q.size()),
                         std::vector<float>(static_cast<size_t>(p.lse_size()))};
    const auto d = static_cast<size_t>(p.head_dim), keys = static_cast<size_t>(p.kv_len);
    for (size_t i = 0; i < result.lse.size(); ++i) { // one head
        std::vector<double> S(keys), O(d);
        for (size_t j = 0; j < keys; ++j) {
            for (size_t x = 0; x < d; ++x) {
                S[j] += static_cast<double>(p.scale * inputs.q[i * d + x] * inputs.k[j * d + x]);
            }
        }
        const double m = std::ranges::max(S);
        double l = 0;
        for (size_t j = 0; j < keys; ++j) {
            const double P = std::exp(S[j] - m);
            l += P;
            for (size_t x = 0; x < d; ++x) {
                O[x] += static_cast<double>(round_to(inputs.dtype, static_cast<float>(P))) *
                        static_cast<double>(inputs.v[j * d + x]);
            }
        }
        for (size_t x = 0; x < d; ++x) {
            result.o[i * d + x] = round_to(inputs.dtype, static_cast<float>(O[x] / l));
        }
        result.lse[i] = static_cast<float>(m + std::log(l));
    }
    return result;
}

} // namespace

TEST_CASE("gradients: the oracle agrees with PyTorch's") {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(FLASH_GOLDEN_DIR "/backward")) {
        const std::string name = entry.path().filename().string();
        CAPTURE(name);
        names.insert(name);
        SafetensorsReader forward(FLASH_GOLDEN_DIR "/" + name), backward(entry.path().string());
        const std::vector<int64_t>&q_shape = forward.info("q").shape,
              &k_shape = forward.info("k").shape;
        const bool has_window = forward.metadata().contains("window"),
                   has_sink = forward.tensors().contains("sink");
        const Problem p{.batch = q_shape.at(0),
                        .heads = q_shape.at(1),
                        .kv_heads = k_shape.at(1),
                        .q_len = q_shape.at(2),
                        .kv_len = k_shape.at(2),
                        .head_dim = q_shape.at(3),
                        .scale = std::stof(forward.metadata().at("scale")),
                        .causal = forward.metadata().at("causal") == "yes",
                        .window = has_window ? std::stoll(forward.metadata().at("window")) : 0,
                        .sink = has_sink};
        const std::vector<float> sink = has_sink ? forward.read("sink") : std::vector<float>();
        const std::vector<float> q = forward.read("q"), k = forward.read("k"),
                                 v = forward.read("v");
        const std::vector<float> d_o = backward.read("do");
        const Gradients<double> exact =
            reference::oracle_gradients(p, {.q = q, .k = k, .v = v, .d_o = d_o, .sink = sink});
        const double tolerance = name.starts_with("huge") ? 1e-10 : 1e-12;
        // Where softmax has one key, dS is 0 up to rounding, and dQ and dK have no size of their
        // own.
        const std::vector<double> dq = backward.read_double("dq"), dk = backward.read_double("dk"),
                                  dv = backward.read_double("dv");
        CHECK(largest_difference(exact.d_q, dq) <= tolerance * (largest(dq) + largest(dv)));
        CHECK(largest_difference(exact.d_k, dk) <= tolerance * (largest(dk) + largest(dv)));
        CHECK(largest_difference(exact.d_v, dv) <= tolerance * largest(dv));
        CHECK(largest(dv) > 0.1);
        if (has_sink) {
            const std::vector<double> dsink = backward.read_double("dsink");
            CHECK(largest_difference(exact.d_sink, dsink) <= tolerance * largest(dsink));
            CHECK(largest(dsink) > 0.1);
        }
    }
    CHECK(names.size() == 28);
}

// L = sum dO O, and the oracle of the forward pass gives O. Its derivative by one element, as a
// quotient of differences: nothing of the backward pass is in it. Elements are fp32, so the step is
// the one that they really made.
TEST_CASE("gradients: the oracle agrees with finite differences") {
    const Problem problems[] = {
        // two rows see nothing
        {.heads = 2, .kv_heads = 1, .q_len = 5, .kv_len = 7, .head_dim = 3, .scale = 0.7f},
        {.batch = 2,
         .heads = 4,
         .kv_heads = 2,
         .q_len = 4,
         .kv_len = 6,
         .head_dim = 2,
         .scale = 0.5f,
         .causal = true},
        {.q_len = 6, .kv_len = 4, .head_dim = 4, .scale = 1.5f, .causal = true},
        // a row sees nothing, and neither is the first key seen
        {.q_len = 6, .kv_len = 5, .head_dim = 4, .scale = 1.5f, .causal = true, .window = 2},
        {.q_len = 3, .kv_len = 6, .head_dim = 3, .scale = 1, .causal = true, .window = 3},
        {.batch = 2,
         .heads = 4,
         .kv_heads = 2,
         .q_len = 5,
         .kv_len = 4,
         .head_dim = 3,
         .scale = 0.5f,
         .causal = true,
         .window = 2,
         .sink = true},
        {.q_len = 5, .kv_len = 4, .head_dim = 3, .scale = 0.8f, .sink = true},
    };
    for (const Problem& p : problems) {
        Tensors t(p);
        const Gradients<double> exact = reference::oracle_gradients(p, t.view());
        const auto loss = [&] {
            const reference::Exact forward = reference::oracle(p, t.view());
            double sum = 0;
            for (size_t i = 0; i < forward.o.size(); ++i) {
                sum += forward.o[i] * static_cast<double>(t.d_o[i]);
            }
            return sum;
        };
        const auto differences = [&](std::vector<float>& tensor) {
            std::vector<double> result;
            for (float& x : tensor) {
                const float before = x, above = x + 0x1p-10f, below = x - 0x1p-10f;
                x = above;
                const double high = loss();
                x = below;
                const double low = loss();
                x = before;
                result.push_back((high - low) /
                                 (static_cast<double>(above) - static_cast<double>(below)));
            }
            return result;
        };
        CHECK(largest_difference(exact.d_q, differences(t.q)) < 1e-5);
        CHECK(largest_difference(exact.d_k, differences(t.k)) < 1e-5);
        CHECK(largest_difference(exact.d_v, differences(t.v)) < 1e-9); // linear in V
        CHECK(largest_difference(exact.d_sink, differences(t.sink)) < 1e-5);
        CHECK(largest(exact.d_q) > 0.1);
        CHECK(largest(exact.d_k) > 0.1);
        CHECK((largest(exact.d_sink) > 0.1) == p.sink);
    }
}

TEST_CASE("gradients: an ignored K/V head is 0, and the others do not notice it") {
    const Problem p{.batch = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .q_len = 9,
                    .kv_len = 11,
                    .head_dim = 4,
                    .scale = 0.5f};
    Tensors t(p);
    const Gradients<double> all = reference::oracle_gradients(p, t.view());
    const auto second = static_cast<size_t>(p.kv_len * p.head_dim);
    std::fill_n(t.k.begin() + static_cast<ptrdiff_t>(second), second,
                std::numeric_limits<float>::quiet_NaN());
    const Gradients<double> some =
        reference::oracle_gradients(p, t.view(), {}, {false, true, false, false});
    for (size_t i = 0; i < all.d_k.size(); ++i) {
        const bool ignored = i / second == 1;
        CHECK(some.d_k[i] == (ignored ? 0 : all.d_k[i]));
        CHECK(some.d_v[i] == (ignored ? 0 : all.d_v[i]));
    }
    const auto head = static_cast<size_t>(p.q_len * p.head_dim);
    for (size_t i = 0; i < all.d_q.size(); ++i) {
        CHECK(some.d_q[i] == (i / head == 2 || i / head == 3 ? 0 : all.d_q[i]));
    }
}

TEST_CASE("gradients: the rule accepts what is right, and names what is wrong and where") {
    const Problem p{.heads = 2,
                    .kv_heads = 1,
                    .q_len = 30,
                    .kv_len = 20,
                    .head_dim = 8,
                    .scale = 0.35f,
                    .causal = true};
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
        Tensors t(p);
        t.round(dtype);
        const Gradients<double> exact = reference::oracle_gradients(p, t.view());
        const Gradients<float> right = rounded(exact, dtype);
        const Verdict good = reference::check_gradients(p, t.view(dtype), view(right), {}, 0);
        CHECK(good.message == "");
        CHECK(good.ok);
        CHECK(good.rows == p.lse_size());

        const double u = dtype == DType::fp32 ? 0 : dtype == DType::fp16 ? 0x1p-11 : 0x1p-8;
        const reference::Yardstick yardstick =
            reference::naive_gradients(p, t.view(dtype), reference::forward(p, t.view(dtype), {}));
        const double error =
            largest_difference({yardstick.naive.d_k.begin(), yardstick.naive.d_k.end()}, exact.d_k);
        CHECK(good.d_k.bound ==
              3 * error + 2 * u * largest(exact.d_k) + yardstick.fp32_sums[1] + 1e-5);
        // small where no key has all the weight
        CHECK(yardstick.fp32_sums[1] < 2e-5 * largest(exact.d_k));

        Gradients<float> wrong = right;
        wrong.d_k[17 * 8 + 3] += static_cast<float>(2 * good.d_k.bound);
        CHECK(reference::check_gradients(p, t.view(dtype), view(wrong), {}, 0)
                  .message.starts_with("dK at (b=0, h=0, j=17, x=3)"));
        wrong = right;
        wrong.d_q[(30 + 12) * 8] = std::numeric_limits<float>::quiet_NaN();
        CHECK(reference::check_gradients(p, t.view(dtype), view(wrong), {}, 0)
                  .message.starts_with("dQ at (b=0, h=1, i=12, x=0) is nan"));
        wrong = right;
        wrong.d_k[0] = std::numeric_limits<float>::infinity();
        reference::ExpectedGradients wide = reference::expect_gradients(p, t.view(dtype));
        wide.bounds.fill(std::numeric_limits<double>::infinity());
        CHECK(reference::compare_gradients(p, wide, view(wrong))
                  .message.starts_with("dK at (b=0, h=0, j=0, x=0) is inf"));
        wrong = right;
        std::ranges::fill(wrong.d_v, 0.0f);
        const Verdict zeros = reference::check_gradients(p, t.view(dtype), view(wrong), {}, 0);
        CHECK_FALSE(zeros.ok);
        CHECK(zeros.message.find("dV is zero everywhere") != std::string::npos);
    }
}

TEST_CASE("gradients: the rule for dsink") {
    const Problem p{.batch = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .q_len = 30,
                    .kv_len = 20,
                    .head_dim = 8,
                    .scale = 0.35f,
                    .causal = true,
                    .window = 5,
                    .sink = true};
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
        Tensors t(p);
        t.round(dtype);
        t.sink[3] = -std::numeric_limits<float>::infinity(); // no weight, in rows without keys, too
        const Gradients<double> exact = reference::oracle_gradients(p, t.view());
        CHECK(exact.d_sink[3] == 0);
        const Gradients<float> right = rounded(exact, dtype);
        const Verdict good = reference::check_gradients(p, t.view(dtype), view(right), {}, 0);
        CHECK(good.message == "");
        const reference::Yardstick yardstick =
            reference::naive_gradients(p, t.view(dtype), reference::forward(p, t.view(dtype), {}));
        const std::vector<float>& naive = yardstick.naive.d_sink;
        const double error = largest_difference({naive.begin(), naive.end()}, exact.d_sink);
        REQUIRE(good.d_sink);
        CHECK(good.d_sink->bound == 3 * error + yardstick.fp32_sums[3] + 1e-5);
        // what fp32 loses is little
        CHECK(yardstick.fp32_sums[3] > 0);
        CHECK(yardstick.fp32_sums[3] < 5e-4 * largest(exact.d_sink));

        Gradients<float> wrong = right;
        wrong.d_sink[2] += static_cast<float>(2 * good.d_sink->bound);
        CHECK(reference::check_gradients(p, t.view(dtype), view(wrong), {}, 0)
                  .message.starts_with("dsink at (h=2) is"));
        wrong.d_sink[2] = std::numeric_limits<float>::quiet_NaN();
        CHECK(reference::check_gradients(p, t.view(dtype), view(wrong), {}, 0)
                  .message.starts_with("dsink at (h=2) is nan"));
        std::ranges::fill(wrong.d_sink, 0.0f);
        CHECK(reference::check_gradients(p, t.view(dtype), view(wrong), {}, 0)
                  .message.ends_with("dsink is zero everywhere, and should not be"));
        // a sample has the last K/V head of both batch entries, so heads 2 and 3 are known
        const Verdict sample = reference::check_gradients(p, t.view(dtype), view(wrong), {}, 10);
        CHECK(sample.rows == 4 * p.q_len);
        CHECK(sample.message.starts_with("dsink at (h=2) is 0"));
        wrong.d_sink[2] = right.d_sink[2];
        CHECK(reference::check_gradients(p, t.view(dtype), view(wrong), {}, 10).message == "");
    }
}

// With few queries the error of one delta decides, and O says how large it is. What unfused
// attention makes of a forward kernel's O must do.
TEST_CASE("gradients: the baseline gets the O and LSE that the rung was given") {
    const Problem p{.q_len = 2, .kv_len = 24, .head_dim = 16, .scale = 0.25f};
    int refused_otherwise = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        Tensors t(p, 10 * seed);
        t.q[3] = 12; // an outlier
        t.round(DType::bf16);
        Inputs inputs = t.view(DType::bf16);
        const ForwardResult given = fused_forward(p, inputs);
        const Gradients<float> right = reference::naive_gradients(p, inputs, given).naive;
        // against a baseline that has the oracle's O
        refused_otherwise += reference::check_gradients(p, inputs, view(right), {}, 0).ok ? 0 : 1;
        inputs.o = given.o;
        inputs.lse = given.lse;
        CHECK(reference::check_gradients(p, inputs, view(right), {}, 0).message == "");
    }
    CHECK(refused_otherwise > 0);
}

TEST_CASE("gradients: a wrong O is no excuse") {
    const Problem p{.q_len = 2, .kv_len = 24, .head_dim = 16, .scale = 0.25f};
    Tensors t(p);
    t.round(DType::bf16);
    Inputs inputs = t.view(DType::bf16);
    ForwardResult given = fused_forward(p, inputs);
    given.o[20] += 0.25f;
    inputs.o = given.o;
    inputs.lse = given.lse;
    const Gradients<float> gradients = reference::naive_gradients(p, inputs, given).naive;
    const Verdict verdict = reference::check_gradients(p, inputs, view(gradients), {}, 0);
    CHECK_FALSE(verdict.ok);
    CHECK(verdict.message.starts_with(
        "o and lse are not those of q, k and v: O at (b=0, h=0, i=1, x=4)"));
}

TEST_CASE("gradients: a sample is of whole heads") {
    const Problem p{.batch = 2,
                    .heads = 4,
                    .kv_heads = 4,
                    .q_len = 40,
                    .kv_len = 10,
                    .head_dim = 4,
                    .scale = 0.5f};
    const Tensors t(p);
    Gradients<float> g = rounded(reference::oracle_gradients(p, t.view()), DType::fp32);
    // a quarter of 8 heads
    CHECK(reference::check_gradients(p, t.view(), view(g), {}, 10).rows == 80);
    CHECK(reference::check_gradients(p, t.view(), view(g), {}, 1).rows == 40);
    CHECK(reference::check_gradients(p, t.view(), view(g), {}, 40).rows == 320);
    g.d_q.back() += 1; // the last head is always among them
    CHECK_FALSE(reference::check_gradients(p, t.view(), view(g), {}, 1).ok);
}

TEST_CASE("gradients: a baseline that is not finite is an error of the test") {
    const Problem p{.q_len = 3, .kv_len = 3, .head_dim = 2};
    Tensors t(p);
    t.d_o[1] = std::numeric_limits<float>::infinity();
    CHECK_THROWS_AS(reference::expect_gradients(p, t.view()), std::runtime_error);
}
