#include <Eigen/Core>

#include <limits>

#include "reference/gradients.hpp"
#include "reference/kv_heads.hpp"
#include "reference/products.hpp"

namespace flash::reference {
namespace {

using ConstTile = Eigen::Map<const MatrixF>;

// As the forward oracle's: Eigen's exp stops at 5.6e-309 where the true value is 0.
template <class Row> void softmax(Row&& s) {
    s = (s.array() - s.maxCoeff()).exp();
    s = (s.array() < std::numeric_limits<double>::min()).select(0, s);
    s /= s.sum();
}

} // namespace

Gradients<double> oracle_gradients(const Problem& p, const Inputs& inputs, const Progress& progress,
                                   const std::vector<bool>& ignored_heads) {
    const auto q_size = static_cast<size_t>(p.q_size()), kv_size = static_cast<size_t>(p.kv_size());
    Gradients<double> exact{std::vector<double>(q_size), std::vector<double>(kv_size),
                            std::vector<double>(kv_size)};
    const int64_t d = p.head_dim;
    const auto scale = static_cast<double>(p.scale);

    for_each_kv_head(p, ignored_heads, progress, [&](int64_t b, int64_t kv_head) {
        const int64_t kv_offset = (b * p.kv_heads + kv_head) * p.kv_len * d;
        const MatrixD K = ConstTile(inputs.k.data() + kv_offset, p.kv_len, d).cast<double>();
        const MatrixD V = ConstTile(inputs.v.data() + kv_offset, p.kv_len, d).cast<double>();
        Eigen::Map<MatrixD> dK(exact.d_k.data() + kv_offset, p.kv_len, d);
        Eigen::Map<MatrixD> dV(exact.d_v.data() + kv_offset, p.kv_len, d);

        for_each_tile_of_group(p, b, kv_head, [&](const RowTile& tile) {
            const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
            // the last row sees the most
            const int64_t keys = p.visible_keys(tile.first + tile.rows - 1);
            const MatrixD Q = ConstTile(inputs.q.data() + offset, tile.rows, d).cast<double>();
            const MatrixD dO = ConstTile(inputs.d_o.data() + offset, tile.rows, d).cast<double>();
            Eigen::Map<MatrixD> dQ(exact.d_q.data() + offset, tile.rows, d);

            // S, and then P in its place
            MatrixD P = scale * product_transposed(Q, K.topRows(keys));
            MatrixD dS = product_transposed(dO, V.topRows(keys)); // dP, and then dS in its place
            for (int64_t i = 0; i < tile.rows; ++i) {
                const int64_t visible = p.visible_keys(tile.first + i);
                if (visible > 0) {
                    softmax(P.row(i).head(visible));
                }
                P.row(i).tail(keys - visible).setZero();
                // dP_k / dS_j = P_k (1 if j = k, else 0) - P_k P_j. Times dL/dP_k, summed over k:
                const double mean = P.row(i).dot(dS.row(i));
                dS.row(i) = P.row(i).array() * (dS.row(i).array() - mean);
            }
            dQ = scale * product(dS, K.topRows(keys));
            dK.topRows(keys) += scale * transposed_product(dS, Q);
            dV.topRows(keys) += transposed_product(P, dO);
        });
    });
    return exact;
}

} // namespace flash::reference
