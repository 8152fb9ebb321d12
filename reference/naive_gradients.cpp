#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/gradients.hpp"
#include "reference/kv_heads.hpp"
#include "reference/products.hpp"

namespace flash::reference {
namespace {

using Matrix = MatrixF;
using ConstTile = Eigen::Map<const Matrix>;

} // namespace

Yardstick naive_gradients(const Problem& p, const Inputs& inputs, const ForwardResult& forward,
                          const Progress& progress, const std::vector<bool>& ignored_heads) {
    const auto q_size = static_cast<size_t>(p.q_size()), kv_size = static_cast<size_t>(p.kv_size());
    Yardstick yardstick{
        {std::vector<float>(q_size), std::vector<float>(kv_size), std::vector<float>(kv_size)}};
    Gradients<float>& result = yardstick.naive;
    const int64_t d = p.head_dim;
    const auto round = [type = inputs.dtype](float x) { return round_to(type, x); };
    // (B, H); `sink_moves` in units of 2^-20
    std::vector<float> d_sink(static_cast<size_t>(p.sink ? p.batch * p.heads : 0));
    std::vector<double> sink_moves(d_sink.size());

    for_each_kv_head(p, ignored_heads, progress, [&](int64_t b, int64_t kv_head) {
        const int64_t kv_offset = (b * p.kv_heads + kv_head) * p.kv_len * d;
        const ConstTile K(inputs.k.data() + kv_offset, p.kv_len, d),
            V(inputs.v.data() + kv_offset, p.kv_len, d);
        Eigen::Map<Matrix> dK(result.d_k.data() + kv_offset, p.kv_len, d);
        Eigen::Map<Matrix> dV(result.d_v.data() + kv_offset, p.kv_len, d);

        const Matrix K_abs = K.cwiseAbs(), V_abs = V.cwiseAbs();
        Matrix dK_moves = Matrix::Zero(p.kv_len, d), dV_moves = dK_moves; // in units of 2^-20
        double dQ_moves = 0;

        for_each_tile_of_group(p, b, kv_head, [&](const RowTile& tile) {
            const int64_t offset = p.q_offset(tile.b, tile.h) + tile.first * d;
            const auto [begin, end] = keys_of(p, tile);
            const int64_t keys = end - begin;
            const ConstTile Q(inputs.q.data() + offset, tile.rows, d),
                dO(inputs.d_o.data() + offset, tile.rows, d);
            const ConstTile O(forward.o.data() + offset, tile.rows, d);
            const float* const LSE = forward.lse.data() + offset / d;
            Eigen::Map<Matrix> dQ(result.d_q.data() + offset, tile.rows, d);

            // S, and then P in its place
            Matrix P = p.scale * product_transposed(Q, K.middleRows(begin, keys));
            // dP, and then dS in its place
            Matrix dS = product_transposed(dO, V.middleRows(begin, keys));
            const Matrix Q_abs = Q.cwiseAbs(), dO_abs = dO.cwiseAbs();
            const Matrix QK = p.scale * product_transposed(Q_abs, K_abs.middleRows(begin, keys));
            const Matrix dOV = product_transposed(dO_abs, V_abs.middleRows(begin, keys));
            Matrix P_moves(tile.rows, keys), dS_moves(tile.rows, keys);
            for (int64_t i = 0; i < tile.rows; ++i) {
                const Keys seen = keys_of(p, tile, i);
                const int64_t first = seen.begin, visible = seen.count();
                const float A = visible > 0 ? QK.row(i).segment(first, visible).maxCoeff() : 0;
                const float D = visible > 0 ? dOV.row(i).segment(first, visible).maxCoeff() : 0;
                const float delta = dO.row(i).dot(O.row(i));
                auto row = P.row(i).segment(first, visible); // empty where LSE is -inf
                // P is at most 1, also where S and LSE are so large that their difference is noise
                row = (row.array() - LSE[i]).min(0.0f).exp();
                // as in naive.cpp
                row = (row.array() < std::numeric_limits<float>::min()).select(0, row);
                P.row(i).head(first).setZero();
                P.row(i).tail(keys - seen.end).setZero();
                P.row(i) = P.row(i).unaryExpr(round).eval();
                dS.row(i) = P.row(i).array() * (dS.row(i).array() - delta);
                if (A < 0x1p20f) {
                    P_moves.row(i) = A * P.row(i);
                    dS_moves.row(i) = D * P.row(i) + A * dS.row(i).cwiseAbs();
                } else { // no digit of S is known: P is 0 to 1, and dS at most 2 D
                    P_moves.row(i).setZero();
                    P_moves.row(i).segment(first, visible).setConstant(0x1p20f);
                    dS_moves.row(i) = 2 * D * P_moves.row(i);
                }
                dS.row(i) = dS.row(i).unaryExpr(round).eval();
                if (p.sink) {
                    const auto head = static_cast<size_t>(tile.b * p.heads + tile.h);
                    const float sink = inputs.sink[static_cast<size_t>(tile.h)];
                    const float below = std::abs(LSE[i] - sink); // NaN where both are -inf
                    const float weight = std::isfinite(sink) ? std::exp(-below) : 0;
                    if (weight > 0) {
                        const float moves = weight * (D + std::abs(delta) * (1 + below));
                        d_sink[head] -= weight * delta;
                        sink_moves[head] += static_cast<double>(moves);
                    }
                }
            }
            dQ = p.scale * product(dS, K.middleRows(begin, keys));
            dK.middleRows(begin, keys) += p.scale * transposed_product(dS, Q);
            dV.middleRows(begin, keys) += transposed_product(P, dO);
            dQ = dQ.unaryExpr(round).eval();
            dQ_moves = std::max<double>(
                dQ_moves, p.scale * product(dS_moves, K_abs.middleRows(begin, keys)).maxCoeff());
            dK_moves.middleRows(begin, keys) += p.scale * transposed_product(dS_moves, Q_abs);
            dV_moves.middleRows(begin, keys) += transposed_product(P_moves, dO_abs);
        });
        dK = dK.unaryExpr(round).eval();
        dV = dV.unaryExpr(round).eval();
        const double moves[] = {dQ_moves, dK_moves.maxCoeff(), dV_moves.maxCoeff()};
#pragma omp critical
        for (size_t which = 0; which < 3; ++which) {
            yardstick.fp32_sums[which] =
                std::max(yardstick.fp32_sums[which], 0x1p-20 * moves[which]);
        }
    });
    if (p.sink) {
        result.d_sink = sum_of_batch(p, ignored_heads, d_sink);
        yardstick.fp32_sums[3] =
            0x1p-20 * std::ranges::max(sum_of_batch(p, ignored_heads, sink_moves));
    }
    return yardstick;
}

} // namespace flash::reference
