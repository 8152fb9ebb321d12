#include "reference/naive.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/products.hpp"
#include "reference/row_tiles.hpp"

namespace flash::reference {
namespace {

using Matrix = MatrixF;
using ConstTile = Eigen::Map<const Matrix>;

// Turns one row of scores into its softmax, in place; the sink is one more score. NaN anywhere
// gives NaN everywhere.
template <class Row> void softmax_fp32(Row&& s, float sink) {
    const float highest = s.maxCoeff(), m = sink > highest ? sink : highest; // NaN stays
    s = (s.array() - m).exp();
    // Subnormal numbers make products slow, and are far below what rounding loses anyway.
    s = (s.array() < std::numeric_limits<float>::min()).select(0, s);
    s /= s.sum() + std::exp(sink - m);
}

} // namespace

std::vector<float> naive(const Problem& p, const Inputs& inputs, const Progress& progress,
                         const std::vector<bool>& ignored_rows) {
    std::vector<float> result(static_cast<size_t>(p.o_size()));
    const int64_t d = p.head_dim, d_v = p.v_dim();
    const auto round = [type = inputs.dtype](float x) { return round_to(type, x); };
    const float largest = largest_number(inputs.dtype);

    for_each_row_tile(p, ignored_rows, progress, [&](const RowTile& tile) {
        const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
        const auto [begin, end] = keys_of(p, tile);
        const int64_t keys = end - begin;
        const float sink = p.sink ? inputs.sink[static_cast<size_t>(tile.h)]
                                  : -std::numeric_limits<float>::infinity();
        const ConstTile Q(inputs.q.data() + offset, tile.rows, d);
        const ConstTile K(inputs.k.data() + p.kv_offset(tile.b, tile.h) + begin * d, keys, d);
        const ConstTile V(inputs.v.data() + p.v_offset(tile.b, tile.h) + begin * d_v, keys, d_v);
        Eigen::Map<Matrix> O(result.data() + offset / d * d_v, tile.rows, d_v);

        Matrix S = p.scale * product_transposed(Q, K);
        for (int64_t i = 0; i < tile.rows; ++i) {
            const Keys seen = keys_of(p, tile, i);
            if (seen.count() > 0) {
                softmax_fp32(S.row(i).segment(seen.begin, seen.count()), sink);
            }
            S.row(i).head(seen.begin).setZero();
            S.row(i).tail(keys - seen.end).setZero();
        }
        const Matrix P = inputs.dtype == DType::fp32 ? std::move(S) : Matrix(S.unaryExpr(round));
        O = product(P, V);
        if (inputs.dtype != DType::fp32) {
            // rounded P may carry an average of 65504 beyond it, where fp16 would say infinity
            O = O.unaryExpr([round, largest](float x) {
                     return std::isfinite(x) ? round(std::clamp(x, -largest, largest)) : x;
                 }).eval();
        }
    });
    return result;
}

} // namespace flash::reference
