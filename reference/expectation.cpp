// The first half of the rule: what is expected, and how far from it an output may be.
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "reference/expectation.hpp"
#include "reference/naive.hpp"
#include "reference/oracle.hpp"
#include "reference/products.hpp"
#include "reference/row_tiles.hpp"

namespace flash::reference {
namespace {

using Matrix = MatrixF;
using ConstTile = Eigen::Map<const Matrix>;

constexpr double lse_tolerance = 2e-5;

// What LSE may be off by beyond that where P is summed up after it was rounded.
double rounding_of_sums(const Problem& p, DType type) {
    const double of_small_weights = type == DType::fp16 ? 0x1p-25 : 0;
    return unit_roundoff(type) + static_cast<double>(p.kv_len) * of_small_weights;
}

// Numbers below it are coarse: they are this far apart in fp16, and 0 where fp32 flushes them.
double smallest(DType type) { return type == DType::fp16 ? 0x1p-24 : 0x1p-126; }

// The least and the largest V in each column that a row sees; NaN in ignored heads is left out. A
// row that sees no key gets 0. A sink owns no key, as if its V were 0.
void fill_range_of_V(const Problem& p, const Inputs& inputs, Expectation& e) {
    const auto d_v = static_cast<size_t>(p.v_dim());
    e.v_low.assign(static_cast<size_t>(p.o_size()), 0);
    e.v_high = e.v_low;
    for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < p.heads; ++h) {
            const float* V = inputs.v.data() + p.v_offset(b, h);
            const auto first_row = static_cast<size_t>(p.o_offset(b, h));
            const float before_any = p.sink ? 0 : std::numeric_limits<float>::infinity();
            std::vector<float> low(d_v, before_any), high(d_v, -before_any);
            int64_t seen = 0; // a row sees the keys of the row before, and perhaps more
            for (int64_t i = 0; i < p.q_len; ++i) {
                if (p.window > 0) { // or fewer
                    std::ranges::fill(low, before_any);
                    std::ranges::fill(high, -before_any);
                    seen = p.first_key(i);
                }
                for (; seen < p.visible_keys(i); ++seen) {
                    for (size_t x = 0; x < d_v; ++x) {
                        const float v = V[static_cast<size_t>(seen) * d_v + x];
                        low[x] = v < low[x] ? v : low[x];
                        high[x] = v > high[x] ? v : high[x];
                    }
                }
                if (p.visible_keys(i) > 0) {
                    const size_t row = first_row + static_cast<size_t>(i) * d_v;
                    std::ranges::copy(low, e.v_low.begin() + static_cast<int64_t>(row));
                    std::ranges::copy(high, e.v_high.begin() + static_cast<int64_t>(row));
                }
            }
        }
    }
}

// A_i for every row, 0 where a row sees no key. An fp32 score is wrong by some units of 2^-24 A_i,
// however it is summed up.
std::vector<double> score_magnitudes(const Problem& p, const Inputs& inputs,
                                     const Progress& progress,
                                     const std::vector<bool>& ignored_rows) {
    std::vector<double> A(static_cast<size_t>(p.lse_size()));
    const int64_t d = p.head_dim;
    for_each_row_tile(p, ignored_rows, progress, [&](const RowTile& tile) {
        const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
        const auto [begin, end] = keys_of(p, tile);
        const Matrix Q = ConstTile(inputs.q.data() + offset, tile.rows, d).cwiseAbs();
        const Matrix K =
            ConstTile(inputs.k.data() + p.kv_offset(tile.b, tile.h) + begin * d, end - begin, d)
                .cwiseAbs();
        const Matrix sums = product_transposed(Q, K);
        for (int64_t i = 0; i < tile.rows; ++i) {
            const Keys seen = keys_of(p, tile, i);
            const double largest =
                seen.count() > 0
                    ? static_cast<double>(sums.row(i).segment(seen.begin, seen.count()).maxCoeff())
                    : 0.0;
            A[static_cast<size_t>(offset / d + i)] = static_cast<double>(p.scale) * largest;
        }
    });
    return A;
}

// A part of the whole: maps 0..1 of one phase to first..last of the check.
Progress part(const Progress& whole, double first, double last) {
    if (!whole) {
        return {};
    }
    return [&whole, first, last](double fraction) { whole(first + (last - first) * fraction); };
}

std::string not_finite(const Problem& p, size_t row) {
    const int64_t r = static_cast<int64_t>(row);
    return "the reference itself is not finite in row i=" + std::to_string(r % p.q_len) +
           " of head h=" + std::to_string(r / p.q_len % p.heads) +
           ", batch b=" + std::to_string(r / p.q_len / p.heads) +
           ", so there is nothing to compare with\n" +
           "the inputs hold NaN, infinity, or values whose scores are too large for fp32";
}

} // namespace

Expectation expect(const Problem& p, const Inputs& inputs, std::vector<bool> ignored_rows,
                   const Progress& progress) {
    Exact exact = oracle(p, inputs, part(progress, 0.0, 0.6), ignored_rows);
    const std::vector<float> baseline = naive(p, inputs, part(progress, 0.6, 0.85), ignored_rows);
    const std::vector<double> A =
        score_magnitudes(p, inputs, part(progress, 0.85, 1.0), ignored_rows);

    Expectation e;
    e.ignored = std::move(ignored_rows);
    e.o = std::move(exact.o);
    e.lse = std::move(exact.lse);
    e.lse_bound.resize(A.size());
    e.all_zero = true;
    double baseline_error = 0, largest_o = 0, largest_a = 0, largest_v = 0;
    const size_t d_v = static_cast<size_t>(p.v_dim());
    for (size_t row = 0; row < A.size(); ++row) {
        e.lse_bound[row] = lse_tolerance + 0x1p-19 * A[row];
        if (p.sink && std::isfinite(e.lse[row])) { // one of 1e30 is LSE, whatever the scores are
            e.lse_bound[row] += 0x1p-22 * std::abs(e.lse[row]);
        }
        if (e.is_ignored(row)) {
            continue;
        }
        largest_a = std::max(largest_a, A[row]);
        for (size_t i = row * d_v; i < (row + 1) * d_v; ++i) {
            if (!std::isfinite(baseline[i]) || !std::isfinite(e.o[i])) {
                throw std::runtime_error(not_finite(p, row));
            }
            e.all_zero = e.all_zero && baseline[i] == 0;
            baseline_error =
                std::max(baseline_error, std::abs(static_cast<double>(baseline[i]) - e.o[i]));
            largest_o = std::max(largest_o, std::abs(e.o[i]));
        }
    }
    for (const float v : inputs.v) {
        if (std::isfinite(v)) { // heads that are ignored may hold anything
            largest_v = std::max(largest_v, static_cast<double>(std::abs(v)));
        }
    }
    const double u = unit_roundoff(inputs.dtype);
    fill_range_of_V(p, inputs, e);
    e.average_roundoff = 2 * u + 0x1p-16;
    e.floor = 1e-5 * std::min(1.0, largest_v) + smallest(inputs.dtype);
    e.fp32_sums = 0x1p-20 * largest_a * largest_v;
    e.rounded_sums = rounding_of_sums(p, inputs.dtype);
    e.rounding = 2 * baseline_error + 2 * u * largest_o + e.floor;
    e.o_bound = e.rounding + e.fp32_sums;
    if (!std::isfinite(e.o_bound)) {
        throw std::runtime_error("the bound on O is not finite: the scores are too large for fp32");
    }
    return e;
}

} // namespace flash::reference
