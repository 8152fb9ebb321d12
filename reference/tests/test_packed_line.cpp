// Sequences on a line: what belongs to whom, against golden vectors that know no sequence but by a
// mask over the whole line (scripts/lab/data/golden_lines.py), and the verdict on wrong ones.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/text.hpp"
#include "common/harness/packed/packed_kind.hpp"
#include "reference/check.hpp"
#include "reference/oracle.hpp"

namespace {

using namespace flash;

struct Golden {
    PackedShape shape;
    std::vector<float> q, k, v;
    std::vector<double> o, lse;
    Inputs inputs() const { return {.dtype = DType::fp32, .q = q, .k = k, .v = v}; }
};

Golden read_golden(const std::string& name) {
    SafetensorsReader file(std::string(FLASH_GOLDEN_DIR) + "/lines/" + name + ".safetensors");
    const std::vector<int64_t> q_lengths = whole_numbers(file.metadata().at("lengths")).value(),
                               kv_lengths = whole_numbers(file.metadata().at("kv_lengths")).value();
    const Problem p{.batch = std::ssize(q_lengths),
                    .heads = file.info("q").shape.at(1),
                    .kv_heads = file.info("k").shape.at(1),
                    .q_len = std::ranges::max(q_lengths),
                    .kv_len = std::ranges::max(kv_lengths),
                    .head_dim = file.info("q").shape.at(2),
                    .scale = std::stof(file.metadata().at("scale")),
                    .causal = file.metadata().at("causal") == "yes"};
    return {{p, q_lengths, kv_lengths}, file.read("q"),         file.read("k"), file.read("v"),
            file.read_double("o"),      file.read_double("lse")};
}

std::vector<float> as_floats(const std::vector<double>& values) {
    return {values.begin(), values.end()};
}

void no_function(const Problem&, const PackedSequences&, const float*, const float*, const float*,
                 float*, float*) {}

Verdict judged(const Golden& golden, const std::vector<float>& o, const std::vector<float>& lse) {
    const PackedKind kind({.name = "no_rung", .fp32 = no_function, .check = reference::check});
    return kind.judge_line(golden.shape, golden.inputs(), o, lse);
}

/// What the oracle gives where the sequences are those of another shape.
struct Line {
    std::vector<float> o, lse;
};
Line attention(const Golden& golden, const PackedShape& shape) {
    const Problem all = golden.shape.as_one();
    Line line{std::vector<float>(golden.o.size()), std::vector<float>(golden.lse.size())};
    const std::vector<int> q_begins = ends_of(shape.q_lengths),
                           kv_begins = ends_of(shape.kv_lengths);
    for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
        const Problem p = shape.of_sequence(b);
        if (p.q_len == 0 || p.kv_len == 0) {
            continue;
        }
        const auto part = [&](const std::vector<float>& values, int64_t heads, int begin,
                              int64_t rows) {
            return from_line(values, heads, p.head_dim, begin, rows);
        };
        const std::vector<float> q = part(golden.q, p.heads, q_begins[b], p.q_len),
                                 k = part(golden.k, p.kv_heads, kv_begins[b], p.kv_len),
                                 v = part(golden.v, p.kv_heads, kv_begins[b], p.kv_len);
        const reference::Exact exact =
            reference::oracle(p, {.dtype = DType::fp32, .q = q, .k = k, .v = v});
        to_line(line.o, p.heads, p.head_dim, q_begins[b], p.q_len, as_floats(exact.o));
        for (int64_t h = 0; h < p.heads; ++h) {
            for (int64_t i = 0; i < p.q_len; ++i) {
                line.lse[static_cast<size_t>(h * all.q_len + q_begins[b] + i)] =
                    static_cast<float>(exact.lse[static_cast<size_t>(h * p.q_len + i)]);
            }
        }
    }
    return line;
}

} // namespace

TEST_CASE("the oracle, sequence by sequence, agrees with the golden lines") {
    size_t files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(FLASH_GOLDEN_DIR) + "/lines")) {
        ++files;
        const Golden golden = read_golden(entry.path().stem().string());
        CAPTURE(entry.path().stem().string());
        const PackedShape& shape = golden.shape;
        const std::vector<int> q_begins = ends_of(shape.q_lengths),
                               kv_begins = ends_of(shape.kv_lengths);
        double o_error = 0, lse_error = 0;
        for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
            const Problem p = shape.of_sequence(b);
            if (p.q_len == 0 || p.kv_len == 0) {
                continue;
            }
            const std::vector<float> q = from_line(golden.q, p.heads, p.head_dim, q_begins[b],
                                                   p.q_len),
                                     k = from_line(golden.k, p.kv_heads, p.head_dim, kv_begins[b],
                                                   p.kv_len),
                                     v = from_line(golden.v, p.kv_heads, p.head_dim, kv_begins[b],
                                                   p.kv_len);
            const reference::Exact exact =
                reference::oracle(p, {.dtype = DType::fp32, .q = q, .k = k, .v = v});
            for (int64_t h = 0; h < p.heads; ++h) {
                for (int64_t i = 0; i < p.q_len; ++i) {
                    const auto row = static_cast<size_t>(h * p.q_len + i);
                    const auto token = static_cast<size_t>(q_begins[b] + i);
                    const double lse = golden.lse[static_cast<size_t>(h * shape.total_q()) + token];
                    const double error = exact.lse[row] == lse ? 0 : std::abs(exact.lse[row] - lse);
                    lse_error = !(error <= lse_error) ? error : lse_error;
                    for (int64_t x = 0; x < p.head_dim; ++x) {
                        const auto heads = static_cast<size_t>(p.heads);
                        const auto d = static_cast<size_t>(p.head_dim);
                        const double o = golden.o[(token * heads + static_cast<size_t>(h)) * d +
                                                  static_cast<size_t>(x)];
                        const double off = std::abs(exact.o[row * d + static_cast<size_t>(x)] - o);
                        o_error = !(off <= o_error) ? off : o_error;
                    }
                }
            }
        }
        CHECK(o_error <= 1e-13);
        CHECK(lse_error <= 1e-13);
        const Verdict verdict = judged(golden, as_floats(golden.o), as_floats(golden.lse));
        CHECK(verdict.message == "");
        CHECK(verdict.ok);
        CHECK(verdict.rows == shape.problem.heads * shape.total_q());
    }
    CHECK(files == 5);
}

TEST_CASE("a line of wrong sequences is rejected") {
    struct Wrong {
        const char* what;
        std::function<void(PackedShape&)> mistake;
    };
    const Wrong wrong =
        GENERATE(Wrong{"a key of the neighbour",
                       [](PackedShape& s) {
                           ++s.kv_lengths[0];
                           --s.kv_lengths[1];
                       }},
                 Wrong{"a query of the neighbour",
                       [](PackedShape& s) {
                           ++s.q_lengths[1];
                           --s.q_lengths[2];
                       }},
                 Wrong{"no mask", [](PackedShape& s) { s.problem.causal = false; }},
                 Wrong{"one sequence",
                       [](PackedShape& s) {
                           s.q_lengths = {s.total_q()};
                           s.kv_lengths = {s.total_kv()};
                       }},
                 Wrong{"the keys of the queries",
                       [](PackedShape& s) {
                           s.kv_lengths = {5, 15, 3, 12};
                       }},
                 Wrong{"a sequence left out", [](PackedShape& s) { s.q_lengths.back() = 0; }});
    CAPTURE(wrong.what);
    const Golden golden = read_golden("causal");
    const Line right = attention(golden, golden.shape);
    CHECK(judged(golden, right.o, right.lse).ok);
    PackedShape shape = golden.shape;
    wrong.mistake(shape);
    const Line line = attention(golden, shape);
    const Verdict verdict = judged(golden, line.o, line.lse);
    CHECK(!verdict.ok);
    CHECK(verdict.message.starts_with("sequence "));
}

TEST_CASE("a sequence without keys must be 0 and -inf") {
    const Golden golden = read_golden("ragged");
    const std::vector<float> o = as_floats(golden.o), lse = as_floats(golden.lse);
    CHECK(judged(golden, o, lse).ok);
    std::vector<float> changed = o;
    changed.back() = 1e-30f; // of the last sequence, which has a query and no key
    CHECK(!judged(golden, changed, lse).ok);
    changed = lse;
    changed.back() = -1e30f;
    CHECK(judged(golden, o, changed).message ==
          "sequence 3 of 1 queries and 0 keys, by itself: without keys O must be 0 and LSE -inf");
}
