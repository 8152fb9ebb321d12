#include "reference/oracle.hpp"

#include <Eigen/Core>

#include <cmath>
#include <limits>

#include "reference/products.hpp"
#include "reference/row_tiles.hpp"

namespace flash::reference {
namespace {

using ConstTile = Eigen::Map<const MatrixF>;

constexpr double infinity = std::numeric_limits<double>::infinity();

// Keys that are converted to double at a time, so that a head's K and V are never held twice.
constexpr int64_t key_block = 512;

// Turns one row of scores into its softmax, in place, and returns its log-sum-exp. The sink, -inf
// if there is none, is one more score. NaN anywhere gives NaN everywhere. m is subtracted from all:
// a factor exp(-m) above and below the fraction
template <class Row> double softmax_and_lse(Row&& s, double sink) {
    const double highest = s.maxCoeff(), m = sink > highest ? sink : highest; // NaN stays
    s = (s.array() - m).exp();
    // Eigen's exp stops at 5.6e-309 where the true value is 0, and products of such subnormal
    // numbers are slow.
    s = (s.array() < std::numeric_limits<double>::min()).select(0, s);
    const double l = s.sum() + std::exp(sink - m);
    s /= l;
    return m + std::log(l);
}

} // namespace

Exact oracle(const Problem& p, const Inputs& inputs, const Progress& progress,
             const std::vector<bool>& ignored_rows) {
    Exact exact{std::vector<double>(static_cast<size_t>(p.o_size())),
                std::vector<double>(static_cast<size_t>(p.lse_size()))};
    const int64_t d = p.head_dim, d_v = p.v_dim();

    for_each_row_tile(p, ignored_rows, progress, [&](const RowTile& tile) {
        const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
        const auto [begin, end] = keys_of(p, tile);
        const int64_t keys = end - begin;
        const float* K = inputs.k.data() + p.kv_offset(tile.b, tile.h) + begin * d;
        const float* V = inputs.v.data() + p.v_offset(tile.b, tile.h) + begin * d_v;
        const double sink =
            p.sink ? static_cast<double>(inputs.sink[static_cast<size_t>(tile.h)]) : -infinity;
        double* LSE = exact.lse.data() + offset / d;
        Eigen::Map<MatrixD> O(exact.o.data() + offset / d * d_v, tile.rows, d_v);

        const MatrixD Q = ConstTile(inputs.q.data() + offset, tile.rows, d).cast<double>();
        MatrixD S(tile.rows, keys);
        for (int64_t j = 0; j < keys; j += key_block) {
            const int64_t n = std::min(key_block, keys - j);
            const MatrixD K_block = ConstTile(K + j * d, n, d).cast<double>();
            S.middleCols(j, n) = static_cast<double>(p.scale) * product_transposed(Q, K_block);
        }

        for (int64_t i = 0; i < tile.rows; ++i) {
            const Keys seen = keys_of(p, tile, i);
            LSE[i] = seen.count() > 0
                         ? softmax_and_lse(S.row(i).segment(seen.begin, seen.count()), sink)
                         : sink; // -inf if there is none
            S.row(i).head(seen.begin).setZero();
            S.row(i).tail(keys - seen.end).setZero();
        }

        O.setZero();
        for (int64_t j = 0; j < keys; j += key_block) {
            const int64_t n = std::min(key_block, keys - j);
            const MatrixD V_block = ConstTile(V + j * d_v, n, d_v).cast<double>();
            O += product(S.middleCols(j, n), V_block);
        }
    });
    return exact;
}

} // namespace flash::reference
