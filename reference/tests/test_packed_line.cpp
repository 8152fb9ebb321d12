// Sequences on a line, O and gradients: what belongs to whom, against golden vectors that know no
// sequence but by a mask over the whole line (scripts/lab/data/golden_lines.py), and the verdict on
// wrong ones.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/text.hpp"
#include "common/harness/packed/packed_backward_kind.hpp"
#include "common/harness/packed/packed_kind.hpp"
#include "reference/check.hpp"
#include "reference/gradients.hpp"
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

namespace {

/// Mistakes about who belongs to whom.
struct Wrong {
    const char* what;
    void (*mistake)(PackedShape&);
};
const Wrong wrong_shapes[] = {
    {"a key of the neighbour",
     [](PackedShape& s) {
         ++s.kv_lengths[0];
         --s.kv_lengths[1];
     }},
    {"a query of the neighbour",
     [](PackedShape& s) {
         ++s.q_lengths[1];
         --s.q_lengths[2];
     }},
    {"no mask", [](PackedShape& s) { s.problem.causal = false; }},
    {"one sequence",
     [](PackedShape& s) {
         s.q_lengths = {s.total_q()};
         s.kv_lengths = {s.total_kv()};
     }},
    {"the keys of the queries",
     [](PackedShape& s) {
         s.kv_lengths = {5, 15, 3, 12};
     }},
    {"a sequence left out", [](PackedShape& s) { s.q_lengths.back() = 0; }}};

} // namespace

TEST_CASE("a line of wrong sequences is rejected") {
    const Wrong wrong = GENERATE(from_range(std::begin(wrong_shapes), std::end(wrong_shapes)));
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

namespace {

/// The gradients of a golden line, from its q, k and v.
struct GoldenGradients {
    std::vector<float> d_o;
    std::vector<double> d_q, d_k, d_v;
};

GoldenGradients read_gradients(const std::string& name) {
    SafetensorsReader file(std::string(FLASH_GOLDEN_DIR) + "/backward_lines/" + name +
                           ".safetensors");
    return {file.read("do"), file.read_double("dq"), file.read_double("dk"),
            file.read_double("dv")};
}

void no_backward(const Problem&, const PackedSequences&, const float*, const float*, const float*,
                 const float*, const float*, const float*, float*, float*, float*) {}

Verdict judged(const Golden& golden, const GoldenGradients& g, const std::vector<float>& d_q,
               const std::vector<float>& d_k, const std::vector<float>& d_v) {
    const PackedBackwardKind kind({.name = "no_rung",
                                   .fp32 = no_backward,
                                   .check = reference::check_gradients,
                                   .forward = reference::forward});
    Inputs line = golden.inputs();
    const ForwardResult forward = kind.forward_on_line(golden.shape, line);
    line.o = forward.o;
    line.lse = forward.lse;
    line.d_o = g.d_o;
    return kind.judge_line(golden.shape, line, {.d_q = d_q, .d_k = d_k, .d_v = d_v});
}

/// What the oracle gives of sequence b of such a line.
reference::Gradients<double> gradients_of(const Golden& golden, const PackedShape& shape,
                                          const std::vector<float>& d_o, size_t b) {
    const Problem p = shape.of_sequence(b);
    const int q_begin = ends_of(shape.q_lengths)[b], kv_begin = ends_of(shape.kv_lengths)[b];
    const auto queries = [&](const std::vector<float>& line) {
        return from_line(line, p.heads, p.head_dim, q_begin, p.q_len);
    };
    const auto keys = [&](const std::vector<float>& line) {
        return from_line(line, p.kv_heads, p.head_dim, kv_begin, p.kv_len);
    };
    const std::vector<float> q = queries(golden.q), k = keys(golden.k), v = keys(golden.v),
                             own_d_o = queries(d_o);
    return reference::oracle_gradients(p, {.q = q, .k = k, .v = v, .d_o = own_d_o});
}

/// The largest difference between a sequence's tensor and its rows of the line.
double difference(const std::vector<double>& own, const std::vector<double>& line, int64_t heads,
                  int64_t d, int64_t begin, int64_t rows) {
    double largest = 0;
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t x = 0; x < d; ++x) {
                const double error =
                    std::abs(own[static_cast<size_t>((h * rows + i) * d + x)] -
                             line[static_cast<size_t>(((begin + i) * heads + h) * d + x)]);
                largest = !(error <= largest) ? error : largest;
            }
        }
    }
    return largest;
}

/// The oracle's gradients on the line, where the sequences are those of another shape.
struct LineOfGradients {
    std::vector<float> d_q, d_k, d_v;
};
LineOfGradients gradients(const Golden& golden, const GoldenGradients& g,
                          const PackedShape& shape) {
    LineOfGradients line{std::vector<float>(g.d_q.size()), std::vector<float>(g.d_k.size()),
                         std::vector<float>(g.d_v.size())};
    for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
        const Problem p = shape.of_sequence(b);
        if (p.q_len == 0 || p.kv_len == 0) {
            continue;
        }
        const reference::Gradients<double> exact = gradients_of(golden, shape, g.d_o, b);
        const int q_begin = ends_of(shape.q_lengths)[b], kv_begin = ends_of(shape.kv_lengths)[b];
        to_line(line.d_q, p.heads, p.head_dim, q_begin, p.q_len, as_floats(exact.d_q));
        to_line(line.d_k, p.kv_heads, p.head_dim, kv_begin, p.kv_len, as_floats(exact.d_k));
        to_line(line.d_v, p.kv_heads, p.head_dim, kv_begin, p.kv_len, as_floats(exact.d_v));
    }
    return line;
}

} // namespace

TEST_CASE("gradients: the oracle, sequence by sequence, agrees with the golden lines") {
    size_t files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(FLASH_GOLDEN_DIR) + "/backward_lines")) {
        ++files;
        const std::string name = entry.path().stem().string();
        CAPTURE(name);
        const Golden golden = read_golden(name);
        const GoldenGradients g = read_gradients(name);
        const PackedShape& shape = golden.shape;
        for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
            const Problem p = shape.of_sequence(b);
            if (p.q_len == 0 || p.kv_len == 0) {
                continue;
            }
            const reference::Gradients<double> exact = gradients_of(golden, shape, g.d_o, b);
            const int q_begin = ends_of(shape.q_lengths)[b],
                      kv_begin = ends_of(shape.kv_lengths)[b];
            const auto of_keys = [&](const std::vector<double>& own,
                                     const std::vector<double>& line) {
                return difference(own, line, p.kv_heads, p.head_dim, kv_begin, p.kv_len);
            };
            CHECK(difference(exact.d_q, g.d_q, p.heads, p.head_dim, q_begin, p.q_len) <= 1e-12);
            CHECK(of_keys(exact.d_k, g.d_k) <= 1e-12);
            CHECK(of_keys(exact.d_v, g.d_v) <= 1e-12);
        }
        const Verdict verdict =
            judged(golden, g, as_floats(g.d_q), as_floats(g.d_k), as_floats(g.d_v));
        CHECK(verdict.message == "");
        CHECK(verdict.ok);
        for (const GradientError& one : {verdict.d_q, verdict.d_k, verdict.d_v}) {
            CHECK((one.bound > 0 && one.error <= one.bound));
        }
        CHECK(verdict.rows == shape.problem.heads * shape.total_q());
    }
    CHECK(files == 5);
}

TEST_CASE("gradients of wrong sequences are rejected") {
    const Wrong wrong = GENERATE(from_range(std::begin(wrong_shapes), std::end(wrong_shapes)));
    CAPTURE(wrong.what);
    const Golden golden = read_golden("causal");
    const GoldenGradients g = read_gradients("causal");
    PackedShape shape = golden.shape;
    wrong.mistake(shape);
    const LineOfGradients line = gradients(golden, g, shape);
    const Verdict verdict = judged(golden, g, line.d_q, line.d_k, line.d_v);
    CHECK(!verdict.ok);
    CHECK(verdict.message.starts_with("sequence "));
    const GradientError found[] = {verdict.d_q, verdict.d_k, verdict.d_v};
    CHECK(std::ranges::any_of(found, [](const auto& one) { return one.error > one.bound; }));
}

TEST_CASE("gradients that have no other side must be 0") {
    const Golden golden = read_golden("ragged"); // 5, 0, 17, 1 queries and 9, 4, 17, 0 keys
    const GoldenGradients g = read_gradients("ragged");
    const std::vector<float> d_q = as_floats(g.d_q), d_k = as_floats(g.d_k), d_v = as_floats(g.d_v);
    CHECK(judged(golden, g, d_q, d_k, d_v).ok);
    std::vector<float> changed = d_q;
    changed.back() = 1e-30f;
    CHECK(
        judged(golden, g, changed, d_k, d_v).message ==
        "sequence 3 of 1 queries and 0 keys, by itself: without keys dQ must be 0, without queries "
        "dK and dV");
    const size_t unseen = static_cast<size_t>(10 * 64); // key 1 of sequence 1, in one head
    changed = d_k;
    changed[unseen] = 1e-30f;
    CHECK(!judged(golden, g, d_q, changed, d_v).ok);
    changed = d_v;
    changed[unseen] = NAN;
    CHECK(!judged(golden, g, d_q, d_k, changed).ok);
}
