#include "reference/check.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>

#include "reference/naive.hpp"
#include "reference/oracle.hpp"
#include "reference/row_tiles.hpp"

namespace flash::reference {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstTile = Eigen::Map<const Matrix>;

// Half the distance from 1 to the next value of the type; 0 for fp32, whose rounding 1e-5 covers.
double unit_roundoff(DType type) { return type == DType::fp32 ? 0.0 : type == DType::fp16 ? 0x1p-11 : 0x1p-8; }
double lse_tolerance(DType type) { return type == DType::fp32 ? 2e-5 : type == DType::fp16 ? 1e-3 : 4e-3; }

// A_i for every row, 0 where a row sees no key. An fp32 score is wrong by some units of 2^-24 A_i, however it is
// summed.
std::vector<double> score_magnitudes(const Problem& p, const Inputs& inputs, const Progress& progress) {
    std::vector<double> A(static_cast<size_t>(p.lse_size()));
    const int64_t d = p.head_dim;
    for_each_row_tile(p, progress, [&](const RowTile& tile) {
        const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
        const int64_t keys = p.visible_keys(tile.first + tile.rows - 1);
        const Matrix Q = ConstTile(inputs.q.data() + offset, tile.rows, d).cwiseAbs();
        const Matrix K = ConstTile(inputs.k.data() + p.kv_offset(tile.b, tile.h), keys, d).cwiseAbs();
        const Matrix sums = Q * K.transpose();
        for (int64_t i = 0; i < tile.rows; ++i) {
            const int64_t visible = p.visible_keys(tile.first + i);
            const double largest = visible > 0 ? static_cast<double>(sums.row(i).head(visible).maxCoeff()) : 0.0;
            A[static_cast<size_t>(offset / d + i)] = static_cast<double>(p.scale) * largest;
        }
    });
    return A;
}

// A part of the whole: maps 0..1 of one phase into first..last of the check.
Progress part(const Progress& whole, double first, double last) {
    if (!whole) {
        return {};
    }
    return [&whole, first, last](double fraction) { whole(first + (last - first) * fraction); };
}

// |got - expected|; equal values agree, infinities included. NaN whenever there is nothing to subtract.
double distance(float got, double expected) {
    return static_cast<double>(got) == expected ? 0.0 : std::abs(static_cast<double>(got) - expected);
}

std::string text(const char* format, auto... values) {
    char line[320];
    std::snprintf(line, sizeof line, format, values...);
    return line;
}

// How far one tensor is from what was expected: the largest error, and the first and the worst element out of bounds.
struct Comparison {
    double worst_error = 0, worst_ratio = -1;
    int64_t worst = 0, first_wrong = -1, wrong = 0, compared = 0;

    void add(int64_t index, double error, double bound) {
        ++compared;
        const bool bad = !(error <= bound); // not error > bound: NaN must fail
        if (bad && wrong++ == 0) {
            first_wrong = index;
        }
        const double ratio = std::isnan(error) ? std::numeric_limits<double>::infinity() : error / bound;
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst_error = error;
            worst = index;
        }
    }
};

} // namespace

Expectation expect(const Problem& p, const Inputs& inputs, std::vector<bool> ignored_rows, const Progress& progress) {
    Expectation e;
    e.ignored = std::move(ignored_rows);
    Exact exact = oracle(p, inputs, part(progress, 0.0, 0.6));
    const std::vector<float> baseline = naive(p, inputs, part(progress, 0.6, 0.85));
    const std::vector<double> A = score_magnitudes(p, inputs, part(progress, 0.85, 1.0));
    e.o = std::move(exact.o);
    e.lse = std::move(exact.lse);
    e.lse_bound.resize(A.size());

    double baseline_error = 0, largest_o = 0, largest_a = 0, largest_v = 0;
    e.all_zero = true;
    for (size_t row = 0; row < A.size(); ++row) {
        e.lse_bound[row] = lse_tolerance(inputs.dtype) + 0x1p-19 * A[row];
        if (!e.ignored.empty() && e.ignored[row]) {
            continue;
        }
        largest_a = std::max(largest_a, A[row]);
        const size_t d = static_cast<size_t>(p.head_dim);
        for (size_t i = row * d; i < (row + 1) * d; ++i) {
            if (!std::isfinite(baseline[i]) || !std::isfinite(e.o[i])) {
                throw std::runtime_error(
                    text("the reference is not finite at element %zu of O: nothing can be compared with it; "
                         "the inputs hold NaN, infinity or values too large for fp32 scores",
                         i));
            }
            e.all_zero = e.all_zero && baseline[i] == 0;
            baseline_error = std::max(baseline_error, std::abs(static_cast<double>(baseline[i]) - e.o[i]));
            largest_o = std::max(largest_o, std::abs(e.o[i]));
        }
    }
    for (const float v : inputs.v) {
        if (std::isfinite(v)) { // heads that are ignored may hold anything
            largest_v = std::max(largest_v, static_cast<double>(std::abs(v)));
        }
    }
    e.o_bound =
        2 * baseline_error + 2 * unit_roundoff(inputs.dtype) * largest_o + 0x1p-20 * largest_a * largest_v + 1e-5;
    if (!std::isfinite(e.o_bound)) {
        throw std::runtime_error("the bound on O is not finite: the scores are too large for fp32");
    }
    return e;
}

Verdict compare(const Problem& p, const Expectation& e, const Outputs& outputs) {
    if (outputs.o.size() != e.o.size() || outputs.lse.size() != e.lse.size()) {
        throw std::runtime_error("O or LSE does not have the problem's size");
    }
    const int64_t d = p.head_dim;
    Comparison o, lse;
    bool all_zero = true;
    for (size_t row = 0; row < e.lse.size(); ++row) {
        if (!e.ignored.empty() && e.ignored[row]) {
            continue;
        }
        lse.add(static_cast<int64_t>(row), distance(outputs.lse[row], e.lse[row]), e.lse_bound[row]);
        for (int64_t i = static_cast<int64_t>(row) * d; i < static_cast<int64_t>(row + 1) * d; ++i) {
            const size_t index = static_cast<size_t>(i);
            o.add(i, distance(outputs.o[index], e.o[index]), e.o_bound);
            all_zero = all_zero && outputs.o[index] == 0;
        }
    }

    Verdict verdict;
    verdict.o_error = o.worst_error;
    verdict.o_bound = e.o_bound;
    verdict.lse_error = lse.worst_error;
    verdict.lse_bound = e.lse_bound.empty() ? 0 : e.lse_bound[static_cast<size_t>(lse.worst)];

    // An element of O or LSE as text: where it is, what it holds, what it should hold.
    const auto element = [&](const char* name, int64_t index, int64_t width, double got, double want, double bound) {
        const int64_t row = index / width;
        const std::string x = width > 1 ? text(", x=%lld", static_cast<long long>(index % width)) : "";
        return text("%s at (b=%lld, h=%lld, i=%lld%s) is %.9g, expected %.9g +- %.3g", name,
                    static_cast<long long>(row / p.q_len / p.heads), static_cast<long long>(row / p.q_len % p.heads),
                    static_cast<long long>(row % p.q_len), x.c_str(), std::isnan(got) ? std::abs(got) : got, want,
                    bound);
    };
    const auto report = [&](const Comparison& c, const char* name, int64_t width, std::span<const float> got,
                            const std::vector<double>& want, auto bound) {
        if (c.wrong == 0) {
            return;
        }
        const auto show = [&](int64_t i) {
            const size_t index = static_cast<size_t>(i);
            return element(name, i, width, static_cast<double>(got[index]), want[index], bound(index));
        };
        verdict.message += verdict.message.empty() ? "" : "\n";
        verdict.message += show(c.first_wrong) + text("; %lld of %lld are wrong", static_cast<long long>(c.wrong),
                                                      static_cast<long long>(c.compared));
        if (c.worst != c.first_wrong) {
            verdict.message += ", worst: " + show(c.worst);
        }
    };
    report(o, "O", d, outputs.o, e.o, [&](size_t) { return e.o_bound; });
    report(lse, "LSE", 1, outputs.lse, e.lse, [&](size_t i) { return e.lse_bound[i]; });

    // The bound alone would let zeros pass where every V is tiny: 1e-5 is absolute. The baseline is asked, not the
    // oracle, because averages of the smallest fp16 values do round to zero.
    if (all_zero && !e.all_zero && o.compared > 0) {
        verdict.message += verdict.message.empty() ? "" : "\n";
        verdict.message += "O is zero everywhere, and should not be";
    }
    verdict.ok = verdict.message.empty();
    return verdict;
}

Verdict check(const Problem& p, const Inputs& inputs, const Outputs& outputs, const Progress& progress) {
    return compare(p, expect(p, inputs, {}, progress), outputs);
}

} // namespace flash::reference
