// The second half of the rule: the comparison, and what it says when something is wrong.
#include "reference/check.hpp"
#include "reference/expectation.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference/sample.hpp"

namespace flash::reference {
namespace {

// How far one tensor is from what was expected: its worst element, and the first one out of bounds.
struct Comparison {
    struct Element {
        size_t index = 0;
        double got = 0, expected = 0, bound = 0, error = 0;
    };
    Element worst, first_wrong;
    double worst_ratio = -1;
    int64_t wrong = 0, compared = 0;

    void add(size_t index, float value, double expected, double bound) {
        const double got = static_cast<double>(value);
        // equal infinities agree
        const double error = got == expected ? 0.0 : std::abs(got - expected);
        const Element element{index, got, expected, bound, error};
        ++compared;
        if (!(error <= bound) && wrong++ == 0) { // not `error > bound`: NaN must fail
            first_wrong = element;
        }
        const double ratio =
            std::isnan(error) ? std::numeric_limits<double>::infinity() : error / bound;
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = element;
        }
    }
};

// "O at (b=0, h=3, i=17, x=5) is 0.25, expected 0.5 +- 1e-05". LSE has no x.
std::string describe(const Problem& p, const char* tensor, const Comparison::Element& e,
                     bool has_x) {
    const int64_t index = static_cast<int64_t>(e.index), row = has_x ? index / p.v_dim() : index;
    const std::string x = has_x ? ", x=" + std::to_string(index % p.v_dim()) : "";
    char values[128];
    std::snprintf(values, sizeof values, " is %.9g, expected %.9g +- %.3g",
                  std::isnan(e.got) ? std::abs(e.got) : e.got, // no "-nan"
                  e.expected, e.bound);
    return std::string(tensor) + " at (b=" + std::to_string(row / p.q_len / p.heads) +
           ", h=" + std::to_string(row / p.q_len % p.heads) +
           ", i=" + std::to_string(row % p.q_len) + x + ")" + values;
}

// O is an average of what its row sees of V, whatever the scores are. Empty, or the first element
// that cannot be one.
std::string outside_of_V(const Problem& p, const Expectation& e, std::span<const float> o) {
    const size_t d_v = static_cast<size_t>(p.v_dim());
    std::string first;
    int64_t outside = 0;
    for (size_t i = 0; i < o.size(); ++i) {
        if (e.is_ignored(i / d_v)) {
            continue;
        }
        const double got = static_cast<double>(o[i]);
        const double eps = e.average_error(i);
        const double low = static_cast<double>(e.v_low[i]), high = static_cast<double>(e.v_high[i]);
        if (!(got >= low - eps && got <= high + eps) && outside++ == 0) {
            char values[96];
            std::snprintf(values, sizeof values,
                          ", and what the row sees of V is from %.9g to %.9g", low, high);
            first = describe(p, "O", {i, got, e.o[i], e.o_bound, 0}, true) + values;
        }
    }
    return outside == 0 ? "" : first + "; " + std::to_string(outside) + " are outside";
}

// The largest distance that an element may have from what is expected, and still be within V.
double widest(const Problem& p, const Expectation& e) {
    double most = 0;
    for (size_t i = 0; i < e.o.size(); ++i) {
        if (!e.is_ignored(i / static_cast<size_t>(p.v_dim()))) {
            const double low = static_cast<double>(e.v_low[i]),
                         high = static_cast<double>(e.v_high[i]);
            most = std::max(most, std::max(e.o[i] - low, high - e.o[i]) + e.average_error(i));
        }
    }
    return most;
}

// One line; empty when nothing is wrong.
std::string report(const Problem& p, const char* tensor, const Comparison& c, bool has_x) {
    if (c.wrong == 0) {
        return {};
    }
    std::string line = describe(p, tensor, c.first_wrong, has_x) + "; " + std::to_string(c.wrong) +
                       " of " + std::to_string(c.compared) + " are wrong";
    if (c.worst.index != c.first_wrong.index) {
        line += ", worst: " + describe(p, tensor, c.worst, has_x);
    }
    return line;
}

} // namespace

Verdict compare(const Problem& p, const Expectation& e, const Outputs& outputs) {
    if (outputs.o.size() != e.o.size() || outputs.lse.size() != e.lse.size()) {
        throw std::runtime_error("O or LSE does not have the problem's size");
    }
    const size_t d_v = static_cast<size_t>(p.v_dim());
    Comparison o, lse;
    bool all_zero = true;
    for (size_t row = 0; row < e.lse.size(); ++row) {
        if (e.is_ignored(row)) {
            continue;
        }
        lse.add(row, outputs.lse[row], e.lse[row],
                e.lse_bound[row] + (outputs.rounded_sums ? e.rounded_sums : 0));
        for (size_t i = row * d_v; i < (row + 1) * d_v; ++i) {
            o.add(i, outputs.o[i], e.o[i], e.o_bound);
            all_zero = all_zero && outputs.o[i] == 0;
        }
    }

    std::string message;
    const auto add_line = [&](const std::string& line) {
        message += (message.empty() || line.empty() ? "" : "\n") + line;
    };
    add_line(o.wrong > 0 ? report(p, "O", o, true) : outside_of_V(p, e, outputs.o));
    add_line(report(p, "LSE", lse, false));
    // The bound alone would let zeros pass where every V is tiny: 1e-5 is absolute. The baseline is
    // asked, not the oracle, because averages of the smallest fp16 values do round to zero.
    if (all_zero && !e.all_zero) {
        add_line("O is zero everywhere, and should not be");
    }
    const double most = widest(p, e);
    return {.ok = message.empty(),
            .o_error = o.worst.error,
            .o_bound = std::min(e.o_bound, most),
            .lse_error = lse.worst.error,
            .lse_bound = lse.worst.bound,
            .says_little = e.fp32_sums > most,
            .rows = lse.compared,
            .message = message};
}

Verdict check(const Problem& p, const Inputs& inputs, const Outputs& outputs,
              const Progress& progress, int64_t rows_of_head) {
    std::vector<bool> left_out =
        rows_of_head > 0 ? rows_left_out(p, rows_of_head) : std::vector<bool>();
    return compare(p, expect(p, inputs, std::move(left_out), progress), outputs);
}

} // namespace flash::reference
