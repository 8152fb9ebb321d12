// The rule for gradients: bounds, and the comparison.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference/check.hpp"
#include "reference/expectation.hpp"
#include "reference/gradients.hpp"
#include "reference/kv_heads.hpp"
#include "reference/oracle.hpp"

namespace flash::reference {
namespace {

constexpr const char* names[] = {"dQ", "dK", "dV", "dsink"};
constexpr size_t of_sink = 3;

/// How many gradients there are.
size_t gradients(const Problem& p) { return p.sink ? 4 : 3; }

template <class T> const std::vector<T>& tensor(const Gradients<T>& gradients, size_t which) {
    const std::array all = {&gradients.d_q, &gradients.d_k, &gradients.d_v, &gradients.d_sink};
    return *all.at(which);
}

/// The shape of dQ (which = 0), of dK and dV, or of dsink.
struct Shape {
    const Problem& problem;
    bool sink;
    int64_t heads, rows, d, heads_per_kv_head;
    std::string row;
    Shape(const Problem& p, size_t which)
        : problem(p), sink(which == of_sink), heads(which == 0 ? p.heads : p.kv_heads),
          rows(which == 0 ? p.q_len : p.kv_len), d(p.head_dim),
          heads_per_kv_head(which == 0 ? p.heads / p.kv_heads : 1), row(which == 0 ? "i" : "j") {}

    /// Whether element `index` belongs to an ignored K/V head, of all B H_kv.
    bool is_ignored(size_t index, const std::vector<bool>& ignored_heads) const {
        const auto at = static_cast<int64_t>(index);
        return sink ? reads_ignored(problem, ignored_heads, at)
                    : !ignored_heads.empty() &&
                          ignored_heads[static_cast<size_t>(at / (rows * d) / heads_per_kv_head)];
    }
    /// "(b=0, h=3, i=17, x=5)" in dQ; rows of dK and dV are counted by j, and dsink has heads
    /// alone.
    std::string place(size_t index) const {
        const auto at = static_cast<int64_t>(index);
        if (sink) {
            return "(h=" + std::to_string(at) + ")";
        }
        return "(b=" + std::to_string(at / d / rows / heads) +
               ", h=" + std::to_string(at / d / rows % heads) + ", " + row + "=" +
               std::to_string(at / d % rows) + ", x=" + std::to_string(at % d) + ")";
    }
};

} // namespace

ExpectedGradients expect_gradients(const Problem& p, const Inputs& inputs,
                                   std::vector<bool> ignored_heads, const Progress& progress) {
    const auto part = [&](double first, double last) -> Progress {
        return [&progress, first, last](double fraction) {
            if (progress) {
                progress(first + (last - first) * fraction);
            }
        };
    };
    ExpectedGradients e;
    e.ignored_heads = std::move(ignored_heads);
    e.exact = oracle_gradients(p, inputs, part(0, 0.5), e.ignored_heads);
    const ForwardResult given = inputs.o.empty()
                                    ? forward(p, inputs, part(0.5, 0.7))
                                    : ForwardResult{{inputs.o.begin(), inputs.o.end()},
                                                    {inputs.lse.begin(), inputs.lse.end()}};
    const Yardstick baseline = naive_gradients(p, inputs, given, part(0.7, 1), e.ignored_heads);
    for (size_t which = 0; which < gradients(p); ++which) {
        const std::vector<double>& exact = tensor(e.exact, which);
        const std::vector<float>& naive = tensor(baseline.naive, which);
        const Shape shape(p, which);
        double error = 0, largest = 0;
        for (size_t i = 0; i < exact.size(); ++i) { // what is ignored is 0 in both
            if (!std::isfinite(exact[i]) || !std::isfinite(naive[i])) {
                throw std::runtime_error(
                    "the reference itself is not finite: " + std::string(names[which]) + " at " +
                    shape.place(i) + ", so there is nothing to compare with\n" +
                    "the inputs hold NaN, infinity, or values too large for the type");
            }
            error = std::max(error, std::abs(static_cast<double>(naive[i]) - exact[i]));
            largest = std::max(largest, std::abs(exact[i]));
        }
        const double accumulation = baseline.fp32_sums[which];
        e.all_zero[which] = largest <= 3 * error + accumulation;
        const double u = which == of_sink ? 0 : unit_roundoff(inputs.dtype); // dsink is fp32
        e.bounds[which] = 3 * error + 2 * u * largest + accumulation + 1e-5;
    }
    return e;
}

Verdict compare_gradients(const Problem& p, const ExpectedGradients& e, const Outputs& outputs) {
    const std::span<const float> got[] = {outputs.d_q, outputs.d_k, outputs.d_v, outputs.d_sink};
    Verdict verdict;
    for (size_t which = 0; which < gradients(p); ++which) {
        const std::vector<double>& exact = tensor(e.exact, which);
        if (got[which].size() != exact.size()) {
            throw std::runtime_error(std::string(names[which]) +
                                     " does not have the problem's size");
        }
        const Shape shape(p, which);
        const double bound = e.bounds[which];
        double worst = 0;
        size_t first_wrong = 0, wrong = 0, compared = 0;
        bool all_zero = true;
        for (size_t i = 0; i < exact.size(); ++i) {
            if (shape.is_ignored(i, e.ignored_heads)) {
                continue;
            }
            const double error = std::abs(static_cast<double>(got[which][i]) - exact[i]);
            // not `error > bound`: NaN must fail, and so must infinity, whatever the bound
            if (!(error <= bound && std::isfinite(error)) && wrong++ == 0) {
                first_wrong = i;
            }
            worst = std::max(worst,
                             std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
            all_zero = all_zero && got[which][i] == 0;
            ++compared;
        }
        const GradientError found{worst, bound};
        switch (which) {
        case 0:
            verdict.d_q = found;
            verdict.rows = static_cast<int64_t>(compared) / p.head_dim;
            break;
        case 1:
            verdict.d_k = found;
            break;
        case 2:
            verdict.d_v = found;
            break;
        default:
            verdict.d_sink = found;
        }
        if (wrong > 0) {
            const auto value = static_cast<double>(got[which][first_wrong]);
            char text[160];
            std::snprintf(text, sizeof text,
                          " is %.9g, expected %.9g +- %.3g; %zu of %zu are wrong, by up to %.3g",
                          std::isnan(value) ? std::abs(value) : value, // no "-nan"
                          exact[first_wrong], bound, wrong, compared, worst);
            verdict.message += (verdict.message.empty() ? "" : "\n") + std::string(names[which]) +
                               " at " + shape.place(first_wrong) + text;
        }
        // 1e-5 alone would let zeros pass where all gradients are tiny
        if (all_zero && !e.all_zero[which]) {
            verdict.message += (verdict.message.empty() ? "" : "\n") + std::string(names[which]) +
                               " is zero everywhere, and should not be";
        }
    }
    verdict.ok = verdict.message.empty();
    return verdict;
}

Verdict check_gradients(const Problem& p, const Inputs& inputs, const Outputs& outputs,
                        const Progress& progress, int64_t rows_of_head) {
    std::vector<bool> left_out;
    if (rows_of_head > 0 && rows_of_head < p.q_len) {
        left_out.assign(static_cast<size_t>(p.batch * p.kv_heads), true);
        const int64_t together = p.sink ? p.batch : 1; // dsink needs a head of all batch entries
        const int64_t heads = p.batch * p.kv_heads / together;
        const int64_t wanted = std::max<int64_t>(heads * rows_of_head / p.q_len, 1);
        for (int64_t n = 0; n < wanted; ++n) {
            const int64_t head = heads - 1 - n * heads / wanted; // the last one is among them
            for (int64_t b = 0; b < together; ++b) {
                left_out[static_cast<size_t>(b * p.kv_heads + head)] = false;
            }
        }
    }
    Verdict verdict =
        compare_gradients(p, expect_gradients(p, inputs, std::move(left_out), progress), outputs);
    if (const std::string wrong = wrong_forward(p, inputs, rows_of_head); !wrong.empty()) {
        verdict.ok = false;
        verdict.message = wrong + (verdict.message.empty() ? "" : "\n") + verdict.message;
    }
    return verdict;
}

std::string wrong_forward(const Problem& p, const Inputs& inputs, int64_t rows_of_head) {
    if (inputs.o.empty()) {
        return {};
    }
    // who sums up P after rounding it is not known here
    const Outputs given{.o = inputs.o, .lse = inputs.lse, .rounded_sums = true};
    const Verdict verdict = check(
        p,
        {.dtype = inputs.dtype, .q = inputs.q, .k = inputs.k, .v = inputs.v, .sink = inputs.sink},
        given, {}, rows_of_head);
    return verdict.ok ? "" : "o and lse are not those of q, k and v: " + verdict.message;
}

ForwardResult forward(const Problem& p, const Inputs& inputs, const Progress& progress) {
    const Exact exact = oracle(p, inputs, progress);
    ForwardResult result{std::vector<float>(exact.o.size()), {exact.lse.begin(), exact.lse.end()}};
    std::ranges::transform(exact.o, result.o.begin(),
                           [&](double x) { return round_to(inputs.dtype, static_cast<float>(x)); });
    return result;
}

} // namespace flash::reference
