#include <Eigen/Core>

#include <cmath>
#include <limits>

#include "reference/gradients.hpp"
#include "reference/kv_heads.hpp"
#include "reference/products.hpp"

namespace flash::reference {
namespace {

using ConstTile = Eigen::Map<const MatrixF>;

// As the forward oracle's: Eigen's exp stops at 5.6e-309 where the true value is 0. The sink, -inf
// if there is none, is one more score; its weight is returned.
template <class Row> double softmax(Row&& s, double sink) {
    const double highest = s.maxCoeff(), m = sink > highest ? sink : highest; // NaN stays
    s = (s.array() - m).exp();
    s = (s.array() < std::numeric_limits<double>::min()).select(0, s);
    const double weight = std::exp(sink - m), l = s.sum() + weight;
    s /= l;
    return weight / l;
}

} // namespace

Gradients<double> oracle_gradients(const Problem& p, const Inputs& inputs, const Progress& progress,
                                   const std::vector<bool>& ignored_heads) {
    const auto q_size = static_cast<size_t>(p.q_size()), kv_size = static_cast<size_t>(p.kv_size());
    Gradients<double> exact{std::vector<double>(q_size), std::vector<double>(kv_size),
                            std::vector<double>(kv_size)};
    const int64_t d = p.head_dim;
    const auto scale = static_cast<double>(p.scale);
    std::vector<double> d_sink(static_cast<size_t>(p.sink ? p.batch * p.heads : 0)); // (B, H)

    for_each_kv_head(p, ignored_heads, progress, [&](int64_t b, int64_t kv_head) {
        const int64_t kv_offset = (b * p.kv_heads + kv_head) * p.kv_len * d;
        const MatrixD K = ConstTile(inputs.k.data() + kv_offset, p.kv_len, d).cast<double>();
        const MatrixD V = ConstTile(inputs.v.data() + kv_offset, p.kv_len, d).cast<double>();
        Eigen::Map<MatrixD> dK(exact.d_k.data() + kv_offset, p.kv_len, d);
        Eigen::Map<MatrixD> dV(exact.d_v.data() + kv_offset, p.kv_len, d);

        for_each_tile_of_group(p, b, kv_head, [&](const RowTile& tile) {
            const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
            const auto [begin, end] = keys_of(p, tile);
            const int64_t keys = end - begin;
            const double sink = p.sink
                                    ? static_cast<double>(inputs.sink[static_cast<size_t>(tile.h)])
                                    : -std::numeric_limits<double>::infinity();
            const MatrixD Q = ConstTile(inputs.q.data() + offset, tile.rows, d).cast<double>();
            const MatrixD dO = ConstTile(inputs.d_o.data() + offset, tile.rows, d).cast<double>();
            Eigen::Map<MatrixD> dQ(exact.d_q.data() + offset, tile.rows, d);

            // S, and then P in its place
            MatrixD P = scale * product_transposed(Q, K.middleRows(begin, keys));
            // dP, and then dS in its place
            MatrixD dS = product_transposed(dO, V.middleRows(begin, keys));
            double dS_of_sink = 0; // summed over the rows
            for (int64_t i = 0; i < tile.rows; ++i) {
                const Keys seen = keys_of(p, tile, i);
                // of a row that sees no key, all weight is the sink's, and dS = 1 (0 - 0)
                const double P_of_sink =
                    seen.count() > 0 ? softmax(P.row(i).segment(seen.begin, seen.count()), sink)
                                     : 1;
                P.row(i).head(seen.begin).setZero();
                P.row(i).tail(keys - seen.end).setZero();
                // dP_k / dS_j = P_k (1 if j = k, else 0) - P_k P_j. Times dL/dP_k, summed over k,
                // of which the sink has none:
                const double mean = P.row(i).dot(dS.row(i));
                dS.row(i) = P.row(i).array() * (dS.row(i).array() - mean);
                dS_of_sink += P_of_sink * (0 - mean);
            }
            dQ = scale * product(dS, K.middleRows(begin, keys));
            dK.middleRows(begin, keys) += scale * transposed_product(dS, Q);
            dV.middleRows(begin, keys) += transposed_product(P, dO);
            if (p.sink) {
                d_sink[static_cast<size_t>(tile.b * p.heads + tile.h)] += dS_of_sink;
            }
        });
    });
    if (p.sink) {
        exact.d_sink = sum_of_batch(p, ignored_heads, d_sink);
    }
    return exact;
}

} // namespace flash::reference
