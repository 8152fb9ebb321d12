// The rule for gradients: bounds, and the comparison.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference/check.hpp"
#include "reference/expectation.hpp"
#include "reference/gradients.hpp"
#include "reference/oracle.hpp"

namespace flash::reference {
namespace {

constexpr const char* names[] = {"dQ", "dK", "dV"};

template <class T> const std::vector<T>& tensor(const Gradients<T>& gradients, size_t which) {
    return which == 0 ? gradients.d_q : which == 1 ? gradients.d_k : gradients.d_v;
}

/// The shape of dQ (which = 0), or of dK and dV.
struct Shape {
    int64_t heads, rows, d, heads_per_kv_head;
    std::string row;
    Shape(const Problem& p, size_t which)
        : heads(which == 0 ? p.heads : p.kv_heads), rows(which == 0 ? p.q_len : p.kv_len),
          d(p.head_dim), heads_per_kv_head(which == 0 ? p.heads / p.kv_heads : 1),
          row(which == 0 ? "i" : "j") {}

    /// Number of the K/V head, of all B H_kv, that element `index` belongs to.
    size_t kv_head(size_t index) const {
        return static_cast<size_t>(static_cast<int64_t>(index) / (rows * d) / heads_per_kv_head);
    }
    /// "(b=0, h=3, i=17, x=5)" in dQ; rows of dK and dV are counted by j.
    std::string place(size_t index) const {
        const auto at = static_cast<int64_t>(index);
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
    for (size_t which = 0; which < 3; ++which) {
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
        e.bounds[which] =
            3 * error + 2 * unit_roundoff(inputs.dtype) * largest + accumulation + 1e-5;
    }
    return e;
}

Verdict compare_gradients(const Problem& p, const ExpectedGradients& e, const Outputs& outputs) {
    const std::span<const float> got[] = {outputs.d_q, outputs.d_k, outputs.d_v};
    Verdict verdict;
    for (size_t which = 0; which < 3; ++which) {
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
            if (!e.ignored_heads.empty() && e.ignored_heads[shape.kv_head(i)]) {
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
        (which == 0 ? verdict.d_q : which == 1 ? verdict.d_k : verdict.d_v) = {worst, bound};
        if (which == 0) {
            verdict.rows = static_cast<int64_t>(compared) / p.head_dim;
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
        const int64_t heads = p.batch * p.kv_heads;
        const int64_t wanted = std::max<int64_t>(heads * rows_of_head / p.q_len, 1);
        left_out.assign(static_cast<size_t>(heads), true);
        for (int64_t n = 0; n < wanted; ++n) {
            // the last one is among them
            left_out[static_cast<size_t>(heads - 1 - n * heads / wanted)] = false;
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
    const Verdict verdict =
        check(p, {inputs.dtype, inputs.q, inputs.k, inputs.v}, given, {}, rows_of_head);
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
