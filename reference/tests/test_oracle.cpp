// The oracle against golden vectors that PyTorch computed in float64 (reference/golden/make.py),
// and against what can be said without computing.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/harness/files/safetensors.hpp"
#include "reference/oracle.hpp"

namespace {

using namespace flash;

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Golden {
    Problem problem;
    std::string dtype; // of the file's q, k and v
    std::vector<float> q, k, v, sink;
    std::vector<double> o, lse;
    Inputs inputs() const { return {.dtype = DType::fp32, .q = q, .k = k, .v = v, .sink = sink}; }
};

Golden read_golden(const std::filesystem::path& path) {
    SafetensorsReader file(path.string());
    const std::vector<int64_t>& q = file.info("q").shape;
    const std::vector<int64_t>& k = file.info("k").shape;
    const int64_t d_v = file.info("v").shape.at(3);
    const bool has_window = file.metadata().contains("window"),
               has_sink = file.tensors().contains("sink");
    Golden golden{.problem = {.batch = q.at(0),
                              .heads = q.at(1),
                              .kv_heads = k.at(1),
                              .q_len = q.at(2),
                              .kv_len = k.at(2),
                              .head_dim = q.at(3),
                              .scale = std::stof(file.metadata().at("scale")),
                              .causal = file.metadata().at("causal") == "yes",
                              .window = has_window ? std::stoll(file.metadata().at("window")) : 0,
                              .sink = has_sink,
                              .head_dim_v = d_v == q.at(3) ? 0 : d_v},
                  .dtype = file.info("q").dtype,
                  .q = file.read("q"),
                  .k = file.read("k"),
                  .v = file.read("v"),
                  .sink = has_sink ? file.read("sink") : std::vector<float>(),
                  .o = file.read_double("o"),
                  .lse = file.read_double("lse")};
    validate(golden.problem);
    return golden;
}

const std::map<std::string, Golden>& all_golden() {
    static const std::map<std::string, Golden> files = [] {
        std::map<std::string, Golden> found;
        for (const auto& entry : std::filesystem::directory_iterator(FLASH_GOLDEN_DIR)) {
            if (entry.path().extension() == ".safetensors") {
                found.emplace(entry.path().stem().string(), read_golden(entry.path()));
            }
        }
        return found;
    }();
    return files;
}

double largest(const std::vector<double>& values) {
    double result = 0;
    for (const double x : values) {
        result = std::max(result, std::abs(x));
    }
    return result;
}

std::vector<float> normal(int64_t size, uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> distribution;
    std::vector<float> values(static_cast<size_t>(size));
    std::ranges::generate(values, [&] { return distribution(generator); });
    return values;
}

} // namespace

TEST_CASE("the golden vectors cover every row of the function's table") {
    const auto& files = all_golden();
    CHECK(files.size() >= 20);

    std::set<int64_t> head_dims;
    std::set<std::string> dtypes;
    std::set<std::string> seen;
    for (const auto& [name, golden] : files) {
        const Problem& p = golden.problem;
        head_dims.insert(p.head_dim);
        dtypes.insert(golden.dtype);
        const auto note = [&](bool holds, const char* what) {
            if (holds) {
                seen.insert(what);
            }
        };
        note(p.batch > 1, "batch > 1");
        note(p.heads > 1 && p.kv_heads == p.heads, "several heads");
        note(p.kv_heads > 1 && p.kv_heads < p.heads, "grouped heads");
        note(p.kv_heads == 1 && p.heads > 1, "one K/V head");
        note(!p.causal && p.q_len != p.kv_len, "no mask, N_q != N_kv");
        note(p.causal && p.q_len < p.kv_len, "causal, N_q < N_kv");
        note(p.causal && p.q_len == p.kv_len, "causal, N_q = N_kv");
        note(p.causal && p.q_len > p.kv_len, "causal, N_q > N_kv");
        note(p.q_len == 1, "N_q = 1");
        note(p.kv_len == 1, "N_kv = 1");
        note(p.scale == default_scale(p.head_dim), "default scale");
        note(p.scale < default_scale(p.head_dim), "smaller scale");
        note(p.scale > default_scale(p.head_dim), "larger scale");
        note(p.window == 1, "a window of one key");
        note(p.window > 1 && p.q_len < p.kv_len, "a window, N_q < N_kv");
        note(p.window > 1 && p.q_len == p.kv_len, "a window, N_q = N_kv");
        note(p.window > 1 && p.q_len > p.kv_len, "a window, N_q > N_kv");
        note(p.window > p.kv_len, "a window of more keys than there are");
        note(p.v_dim() < p.head_dim, "V is narrower than K");
        note(p.v_dim() > p.head_dim, "V is wider than K");
        note(p.sink && p.window > 0, "a sink and a window");
        note(p.sink && !p.causal, "a sink without a mask");
        note(std::ranges::count(golden.sink, -std::numeric_limits<float>::infinity()) > 0,
             "a sink without a weight");
        note(p.sink && std::ranges::any_of(golden.lse, [](double lse) { return lse > 1e29; }),
             "a sink of 1e30");
        note(std::ranges::count(golden.lse, -infinity) > 0, "rows that see nothing");
        note(std::ranges::any_of(golden.lse, [](double lse) { return lse > 9e3; }), "huge logits");
        note(std::ranges::all_of(golden.lse, [](double lse) { return lse < -5e4; }),
             "very negative logits");
    }
    CHECK(seen.size() == 27);
    for (const int64_t d : {1, 5, 32, 64, 128, 256}) {
        CHECK(head_dims.contains(d));
    }
    CHECK(dtypes == std::set<std::string>{"F32", "F16", "BF16"});
}

TEST_CASE("the oracle agrees with the golden vectors") {
    for (const auto& [name, golden] : all_golden()) {
        CAPTURE(name);
        const reference::Exact exact = reference::oracle(golden.problem, golden.inputs());
        REQUIRE(exact.o.size() == golden.o.size());
        REQUIRE(exact.lse.size() == golden.lse.size());

        const bool huge = name.starts_with("huge_logits") || name == "negative_logits";
        const double o_bound = (huge ? 1e-11 : 1e-12) * largest(golden.o);
        double o_error = 0, lse_error = 0;
        for (size_t i = 0; i < golden.o.size(); ++i) {
            const double error = std::abs(exact.o[i] - golden.o[i]);
            o_error = std::isnan(error) ? infinity : std::max(o_error, error);
        }
        for (size_t i = 0; i < golden.lse.size(); ++i) {
            const double error =
                exact.lse[i] == golden.lse[i]
                    ? 0 // -inf, too
                    : std::abs(exact.lse[i] - golden.lse[i]) / std::abs(golden.lse[i]);
            lse_error = std::isnan(error) ? infinity : std::max(lse_error, error);
        }
        CHECK(o_error <= o_bound);
        CHECK(lse_error <= 1e-12);
    }
}

TEST_CASE("oracle: equal keys give the mean of the visible values") {
    const Problem p{.heads = 2,
                    .kv_heads = 2,
                    .q_len = 40,
                    .kv_len = 33,
                    .head_dim = 7,
                    .scale = 0.5f,
                    .causal = true};
    const std::vector<float> q = normal(p.q_size(), 1), row = normal(p.head_dim, 2),
                             v = normal(p.kv_size(), 3);
    std::vector<float> k;
    for (int64_t j = 0; j < p.kv_heads * p.kv_len; ++j) {
        k.insert(k.end(), row.begin(), row.end());
    }
    const reference::Exact exact = reference::oracle(p, {DType::fp32, q, k, v});
    for (int64_t h = 0; h < p.heads; ++h) {
        for (int64_t i = 0; i < p.q_len; ++i) {
            const int64_t visible = std::max<int64_t>(0, i + p.kv_len - p.q_len + 1);
            for (int64_t x = 0; x < p.head_dim; ++x) {
                double mean = 0;
                for (int64_t j = 0; j < visible; ++j) {
                    mean += static_cast<double>(
                                v[static_cast<size_t>((h * p.kv_len + j) * p.head_dim + x)]) /
                            static_cast<double>(visible);
                }
                const double o = exact.o[static_cast<size_t>((h * p.q_len + i) * p.head_dim + x)];
                CHECK(std::abs(o - mean) <= 1e-14);
            }
        }
    }
}

TEST_CASE("oracle: windows and sinks, key by key") {
    for (const auto& [N_q, N_kv, window] :
         {std::array{7, 7, 1}, {9, 5, 3}, {3, 11, 4}, {150, 140, 20}, {5, 5, 5}, {6, 4, 9}}) {
        const Problem p{.heads = 4,
                        .kv_heads = 2,
                        .q_len = N_q,
                        .kv_len = N_kv,
                        .head_dim = 3,
                        .scale = 0.7f,
                        .causal = true,
                        .window = window,
                        .sink = true};
        const std::vector<float> q = normal(p.q_size(), 1), k = normal(p.kv_size(), 2),
                                 v = normal(p.kv_size(), 3),
                                 sink = {0.5f, -2, -std::numeric_limits<float>::infinity(), 3};
        const reference::Exact exact =
            reference::oracle(p, {.dtype = DType::fp32, .q = q, .k = k, .v = v, .sink = sink});
        double worst = 0;
        for (int64_t h = 0; h < p.heads; ++h) {
            for (int64_t i = 0; i < N_q; ++i) {
                double sum = std::exp(static_cast<double>(sink[static_cast<size_t>(h)])), o[3] = {};
                const float* Q = q.data() + p.q_offset(0, h) + 3 * i;
                for (int64_t j = 0; j < N_kv; ++j) {
                    const int64_t own = i + N_kv - N_q; // the query's own key
                    if (j <= own && j > own - window) {
                        const float *K = k.data() + p.kv_offset(0, h) + 3 * j,
                                    *V = v.data() + p.kv_offset(0, h) + 3 * j;
                        double score = 0;
                        for (int x = 0; x < 3; ++x) {
                            score += static_cast<double>(Q[x]) * static_cast<double>(K[x]);
                        }
                        const double weight = std::exp(static_cast<double>(p.scale) * score);
                        sum += weight;
                        for (int x = 0; x < 3; ++x) {
                            o[x] += weight * static_cast<double>(V[x]);
                        }
                    }
                }
                const auto row = static_cast<size_t>(h * N_q + i);
                const double lse = std::log(sum);
                worst = std::max(worst, exact.lse[row] == lse ? 0 : std::abs(exact.lse[row] - lse));
                for (size_t x = 0; x < 3; ++x) {
                    worst = std::max(worst,
                                     std::abs(exact.o[3 * row + x] - (sum > 0 ? o[x] / sum : 0)));
                }
            }
        }
        CAPTURE(N_q, N_kv, window);
        CHECK(worst <= 1e-14);
    }
}

TEST_CASE("oracle: a bad row of Q spoils itself alone") {
    const Problem p{.q_len = 20, .kv_len = 15, .head_dim = 4, .scale = 0.5f, .causal = true};
    const std::vector<float> q = normal(p.q_size(), 1), k = normal(p.kv_size(), 2),
                             v = normal(p.kv_size(), 3);
    const reference::Exact good = reference::oracle(p, {DType::fp32, q, k, v});
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> spoilt = q;
        spoilt[2 * 4 + 1] = bad;  // row 2 sees no key
        spoilt[12 * 4 + 1] = bad; // row 12 sees eight
        const reference::Exact exact = reference::oracle(p, {DType::fp32, spoilt, k, v});
        for (size_t i = 0; i < 20; ++i) {
            CAPTURE(bad, i);
            CHECK((i == 12 ? std::isnan(exact.lse[i]) : exact.lse[i] == good.lse[i]));
            for (size_t x = 4 * i; x < 4 * (i + 1); ++x) {
                CHECK((i == 12 ? std::isnan(exact.o[x]) : exact.o[x] == good.o[x]));
            }
        }
    }
}

TEST_CASE("oracle: reports progress from 0 to 1 and passes exceptions on") {
    const Problem p{.heads = 3, .kv_heads = 3, .q_len = 300, .kv_len = 20, .head_dim = 4};
    const std::vector<float> q = normal(p.q_size(), 1), k = normal(p.kv_size(), 2),
                             v = normal(p.kv_size(), 3);
    std::atomic<int> calls = 0, finished = 0, outside = 0;
    reference::oracle(p, {DType::fp32, q, k, v}, [&](double fraction) {
        ++calls;
        finished += fraction == 1.0;
        outside += !(fraction > 0 && fraction <= 1);
    });
    CHECK(calls == 9); // three heads of three tiles
    CHECK(finished == 1);
    CHECK(outside == 0);
    CHECK_THROWS_AS(
        reference::oracle(p, {DType::fp32, q, k, v}, [](double) { throw Error("stop"); }), Error);
}
