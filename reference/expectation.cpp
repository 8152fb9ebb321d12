// The first half of the rule: what is expected, and how far from it an output may be.
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "reference/check.hpp"
#include "reference/naive.hpp"
#include "reference/oracle.hpp"
#include "reference/products.hpp"
#include "reference/row_tiles.hpp"

namespace flash::reference {
namespace {

using Matrix = MatrixF;
using ConstTile = Eigen::Map<const Matrix>;

double lse_tolerance(DType type) {
    return type == DType::fp32 ? 2e-5 : type == DType::fp16 ? 1e-3 : 4e-3;
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
        const int64_t keys = p.visible_keys(tile.first + tile.rows - 1);
        const Matrix Q = ConstTile(inputs.q.data() + offset, tile.rows, d).cwiseAbs();
        const Matrix K =
            ConstTile(inputs.k.data() + p.kv_offset(tile.b, tile.h), keys, d).cwiseAbs();
        const Matrix sums = product_transposed(Q, K);
        for (int64_t i = 0; i < tile.rows; ++i) {
            const int64_t visible = p.visible_keys(tile.first + i);
            const double largest =
                visible > 0 ? static_cast<double>(sums.row(i).head(visible).maxCoeff()) : 0.0;
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
    const size_t d = static_cast<size_t>(p.head_dim);
    for (size_t row = 0; row < A.size(); ++row) {
        e.lse_bound[row] = lse_tolerance(inputs.dtype) + 0x1p-19 * A[row];
        if (e.is_ignored(row)) {
            continue;
        }
        largest_a = std::max(largest_a, A[row]);
        for (size_t i = row * d; i < (row + 1) * d; ++i) {
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
    e.o_bound = 2 * baseline_error + 2 * unit_roundoff(inputs.dtype) * largest_o +
                0x1p-20 * largest_a * largest_v + 1e-5;
    if (!std::isfinite(e.o_bound)) {
        throw std::runtime_error("the bound on O is not finite: the scores are too large for fp32");
    }
    return e;
}

} // namespace flash::reference
