#include "reference/conformance/judge.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>

namespace flash::conformance {
namespace {

// The distance between x and the next larger magnitude of the type.
double unit_in_last_place(DType type, float x) {
    const int mantissa_bits = type == DType::fp32 ? 23 : type == DType::fp16 ? 10 : 7;
    const int smallest_exponent = type == DType::fp16 ? -14 : -126;
    const int exponent = x == 0 ? smallest_exponent : std::max(std::ilogb(x), smallest_exponent);
    return std::ldexp(1.0, exponent - mantissa_bits);
}

std::string place(const Problem& p, size_t row) {
    const int64_t r = static_cast<int64_t>(row);
    return "(b=" + std::to_string(r / p.q_len / p.heads) +
           ", h=" + std::to_string(r / p.q_len % p.heads) + ", i=" + std::to_string(r % p.q_len) +
           ")";
}

// Rows with NaN or infinity in their inputs must show it, in every element. Empty, or where one
// does not.
std::string finite_where_spoilt(const Prepared& prepared, const Outputs& got) {
    const Problem& p = prepared.c.problem;
    const size_t d_v = static_cast<size_t>(p.v_dim());
    for (size_t row = 0; row < prepared.tensors.spoilt.size(); ++row) {
        const int64_t i = static_cast<int64_t>(row) % p.q_len;
        if (!prepared.tensors.spoilt[row] || p.visible_keys(i) == 0) {
            continue;
        }
        bool finite = std::isfinite(got.lse[row]);
        for (size_t x = row * d_v; x < (row + 1) * d_v; ++x) {
            finite = finite || std::isfinite(got.o[x]);
        }
        if (finite) {
            return "row " + place(p, row) + " is finite, though its inputs hold NaN or infinity";
        }
    }
    return {};
}

// With one key the softmax is 1, whatever the score, so O is V. Empty, or where it is not.
std::string differs_from_only_value(const Prepared& prepared, const Outputs& got) {
    const Problem& p = prepared.c.problem;
    const size_t d_v = static_cast<size_t>(p.v_dim());
    for (size_t row = 0; row < got.lse.size(); ++row) {
        const int64_t r = static_cast<int64_t>(row);
        const bool spoilt = !prepared.tensors.spoilt.empty() && prepared.tensors.spoilt[row];
        if (spoilt || p.visible_keys(r % p.q_len) == 0) {
            continue;
        }
        const size_t value =
            static_cast<size_t>(p.v_offset(r / p.q_len / p.heads, r / p.q_len % p.heads));
        for (size_t x = 0; x < d_v; ++x) {
            const float v = prepared.tensors.v[value + x], o = got.o[row * d_v + x];
            const double error = std::abs(static_cast<double>(o) - static_cast<double>(v));
            if (!(error <= unit_in_last_place(prepared.c.dtype, v))) {
                char values[64];
                std::snprintf(values, sizeof values, "%.9g, V = %.9g", static_cast<double>(o),
                              static_cast<double>(v));
                return "with one key O must be V, but row " + place(p, row) + " has O = " + values;
            }
        }
    }
    return {};
}

// Without the maximum, sum exp(S) = exp(LSE): past 88.7 it is infinite in fp32, below -87.3 it
// loses bits, and below -104 it is 0. In between a result may be right or wrong.
constexpr double excused_beyond = 80, overflows_beyond = 104;

// The largest finite |LSE| among the rows that are compared.
double largest_lse(const reference::Expectation& expected) {
    double largest = 0;
    for (size_t row = 0; row < expected.lse.size(); ++row) {
        if (!expected.is_ignored(row) && std::isfinite(expected.lse[row])) {
            largest = std::max(largest, std::abs(expected.lse[row]));
        }
    }
    return largest;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return std::ranges::equal(
        a, b, {}, [](float x) { return std::bit_cast<uint32_t>(x); },
        [](float x) { return std::bit_cast<uint32_t>(x); });
}

// A head with NaN in K and V must show it in every gradient. Empty, or where it does not.
std::string finite_where_spoilt(const Prepared& prepared, const reference::Gradients<float>& got) {
    const Problem& p = prepared.c.problem;
    const std::vector<bool>& spoilt = prepared.gradients.ignored_heads;
    for (size_t head = 0; head < spoilt.size(); ++head) {
        const int64_t b = static_cast<int64_t>(head) / p.kv_heads,
                      h = static_cast<int64_t>(head) % p.kv_heads;
        const auto keys = static_cast<size_t>(p.kv_len * p.head_dim);
        // Rows that see nothing have dQ = 0: the last row of a query head sees every key.
        const int64_t last_row =
            p.q_offset(b, h * (p.heads / p.kv_heads)) + (p.q_len - 1) * p.head_dim;
        const auto any_finite = [](std::span<const float> values) {
            return std::ranges::any_of(values, [](float x) { return std::isfinite(x); });
        };
        if (spoilt[head] && (any_finite(std::span(got.d_q).subspan(
                                 static_cast<size_t>(last_row), static_cast<size_t>(p.head_dim))) ||
                             any_finite(std::span(got.d_k).subspan(head * keys, keys)) ||
                             any_finite(std::span(got.d_v).subspan(head * keys, keys)))) {
            return "a gradient of K/V head (b=" + std::to_string(b) + ", h=" + std::to_string(h) +
                   ") is finite, though its inputs hold NaN";
        }
    }
    return {};
}

const char* kind_of(const Verdict& v, bool gradients) {
    const bool nan = std::isnan(v.o_error) || std::isnan(v.lse_error) || std::isnan(v.d_q.error) ||
                     std::isnan(v.d_k.error) || std::isnan(v.d_v.error) ||
                     (v.d_sink && std::isnan(v.d_sink->error));
    const bool lse_is_right = v.lse_error <= v.lse_bound;
    if (nan || gradients) {
        return nan ? "NaN" : "gradient";
    }
    return lse_is_right ? "O" : v.o_error <= v.o_bound ? "LSE" : "O and LSE";
}

std::vector<Finding> run_and_judge_gradients(const Rung& rung, const Prepared& prepared) {
    const Case& c = prepared.c;
    std::vector<Finding> wrong;
    const auto note = [&](const char* kind, const std::string& said) {
        if (!said.empty()) {
            wrong.push_back({kind, said});
        }
    };
    const std::unique_ptr<AnyRun> made =
        rung.on(c.problem, prepared.tensors.view(c.dtype), margin_of(c));
    AnyRun& run = *made;
    run.run();
    note("damage", run.damage());
    const auto gradients = [&run, &c] {
        return reference::Gradients<float>{run.output(0), run.output(1), run.output(2),
                                           c.problem.sink ? run.output(3) : std::vector<float>()};
    };
    const reference::Gradients<float> got = gradients();
    const auto note_wrong_values = [&](const reference::Gradients<float>& g) {
        const Verdict verdict = reference::compare_gradients(
            c.problem, prepared.gradients,
            {.d_q = g.d_q, .d_k = g.d_k, .d_v = g.d_v, .d_sink = g.d_sink});
        note(kind_of(verdict, true), verdict.message);
        note("finite", finite_where_spoilt(prepared, g));
    };
    note_wrong_values(got);
    for (int repetition = 1; repetition < c.runs && wrong.empty(); ++repetition) {
        run.poison();
        run.run();
        const reference::Gradients<float> again = gradients();
        if (rung.unordered_dQ) { // other bits, but no other result
            note_wrong_values(again);
        }
        if ((!rung.unordered_dQ && !same_bits(again.d_q, got.d_q)) ||
            !same_bits(again.d_k, got.d_k) || !same_bits(again.d_v, got.d_v) ||
            !same_bits(again.d_sink, got.d_sink)) {
            note("other bits",
                 "run " + std::to_string(repetition + 1) + " gave other bits than the first");
        }
    }
    return wrong;
}

std::vector<Finding> run_and_judge(const Rung& rung, const Prepared& prepared) {
    const Case& c = prepared.c;
    std::vector<Finding> wrong;
    const auto note = [&](const char* kind, const std::string& said) {
        if (!said.empty()) {
            wrong.push_back({kind, said});
        }
    };

    const std::unique_ptr<AnyRun> made =
        rung.on(c.problem, prepared.tensors.view(c.dtype), margin_of(c));
    AnyRun& run = *made;
    run.run();
    note("damage", run.damage());
    const std::vector<float> o = run.o(), lse = run.lse();
    const Outputs got{.o = o, .lse = lse, .rounded_sums = rung.rounded_sums};
    const Verdict verdict = reference::compare(c.problem, prepared.expected, got);
    if (const double extreme = largest_lse(prepared.expected);
        rung.overflows && extreme > excused_beyond) {
        if (extreme > overflows_beyond && verdict.ok) {
            note("overflow", "it is right, although leaving the maximum out must overflow here");
        }
        return wrong;
    }
    note(kind_of(verdict, false), verdict.message);
    note("finite", finite_where_spoilt(prepared, got));
    if (c.problem.kv_len == 1 && !c.problem.sink) {
        note("one key", differs_from_only_value(prepared, got));
    }

    for (int repetition = 1; repetition < c.runs && wrong.empty(); ++repetition) {
        run.poison();
        run.run();
        if (!same_bits(run.o(), o) || !same_bits(run.lse(), lse)) {
            note("other bits",
                 "run " + std::to_string(repetition + 1) + " gave other bits than the first");
        }
    }
    return wrong;
}

} // namespace

size_t margin_of(const Case& c) {
    constexpr int64_t rows = 256;
    // a multiple of 256, as rows is
    return static_cast<size_t>(rows * c.problem.head_dim * dtype_bytes(c.dtype));
}

Prepared prepare(const Case& c) {
    Prepared prepared{c, make_inputs(c), {}, {}};
    const Tensors& t = prepared.tensors;
    if (c.backward) {
        prepared.gradients =
            reference::expect_gradients(c.problem, t.view(c.dtype), t.spoilt_heads(c.problem));
    } else {
        prepared.expected = reference::expect(c.problem, t.view(c.dtype), t.spoilt);
        // Of huge equal scores no sum rounds in fp32, so all weights are equal. Beyond one step of
        // any rung, results are merged by LSE, in which log l is lost beside such scores.
        if (c.kind == Kind::huge_equal && c.problem.kv_len <= 16) {
            prepared.expected.fp32_sums = 0;
            prepared.expected.o_bound = prepared.expected.rounding;
        }
    }
    return prepared;
}

namespace {

std::vector<Finding> caught(const std::function<std::vector<Finding>()>& work) {
    try {
        return work();
    } catch (const KernelFault& fault) {
        return {{fault.name, std::string("it threw: ") + fault.what()}};
    } catch (const std::exception& error) {
        return {{"exception", std::string("it threw: ") + error.what()}};
    }
}

} // namespace

std::vector<Finding> findings(const Rung& rung, const Prepared& prepared) {
    if (prepared.c.backward) {
        return caught([&] { return run_and_judge_gradients(rung, prepared); });
    }
    std::vector<Finding> found = caught([&] { return run_and_judge(rung, prepared); });
    if (const Rung::Way way = rung.other_way(prepared.c.problem);
        found.empty() && way.rung != nullptr) {
        found = caught([&] { return run_and_judge(*way.rung, prepared); });
        for (Finding& one : found) {
            one.said += "\n" + way.how;
        }
    }
    return found;
}

std::vector<std::string> judge(const Rung& rung, const Prepared& prepared) {
    std::vector<std::string> all;
    for (Finding& one : findings(rung, prepared)) {
        all.push_back(std::move(one.said));
    }
    return all;
}

} // namespace flash::conformance
