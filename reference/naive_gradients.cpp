#include <Eigen/Core>

#include <algorithm>
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
            const int64_t keys = p.visible_keys(tile.first + tile.rows - 1);
            const ConstTile Q(inputs.q.data() + offset, tile.rows, d),
                dO(inputs.d_o.data() + offset, tile.rows, d);
            const ConstTile O(forward.o.data() + offset, tile.rows, d);
            const float* const LSE = forward.lse.data() + offset / d;
            Eigen::Map<Matrix> dQ(result.d_q.data() + offset, tile.rows, d);

            // S, and then P in its place
            Matrix P = p.scale * product_transposed(Q, K.topRows(keys));
            Matrix dS = product_transposed(dO, V.topRows(keys)); // dP, and then dS in its place
            const Matrix Q_abs = Q.cwiseAbs(), dO_abs = dO.cwiseAbs();
            const Matrix QK = p.scale * product_transposed(Q_abs, K_abs.topRows(keys));
            const Matrix dOV = product_transposed(dO_abs, V_abs.topRows(keys));
            Matrix P_moves(tile.rows, keys), dS_moves(tile.rows, keys);
            for (int64_t i = 0; i < tile.rows; ++i) {
                const int64_t visible = p.visible_keys(tile.first + i);
                const float A = visible > 0 ? QK.row(i).head(visible).maxCoeff() : 0;
                const float D = visible > 0 ? dOV.row(i).head(visible).maxCoeff() : 0;
                auto row = P.row(i).head(visible); // empty where LSE is -inf
                // P is at most 1, also where S and LSE are so large that their difference is noise
                row = (row.array() - LSE[i]).min(0.0f).exp();
                // as in naive.cpp
                row = (row.array() < std::numeric_limits<float>::min()).select(0, row);
                P.row(i).tail(keys - visible).setZero();
                P.row(i) = P.row(i).unaryExpr(round).eval();
                dS.row(i) = P.row(i).array() * (dS.row(i).array() - dO.row(i).dot(O.row(i)));
                if (A < 0x1p20f) {
                    P_moves.row(i) = A * P.row(i);
                    dS_moves.row(i) = D * P.row(i) + A * dS.row(i).cwiseAbs();
                } else { // no digit of S is known: P is 0 to 1, and dS at most 2 D
                    P_moves.row(i).setConstant(0x1p20f);
                    P_moves.row(i).tail(keys - visible).setZero();
                    dS_moves.row(i) = 2 * D * P_moves.row(i);
                }
                dS.row(i) = dS.row(i).unaryExpr(round).eval();
            }
            dQ = p.scale * product(dS, K.topRows(keys));
            dK.topRows(keys) += p.scale * transposed_product(dS, Q);
            dV.topRows(keys) += transposed_product(P, dO);
            dQ = dQ.unaryExpr(round).eval();
            dQ_moves = std::max<double>(
                dQ_moves, p.scale * product(dS_moves, K_abs.topRows(keys)).maxCoeff());
            dK_moves.topRows(keys) += p.scale * transposed_product(dS_moves, Q_abs);
            dV_moves.topRows(keys) += transposed_product(P_moves, dO_abs);
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
    return yardstick;
}

} // namespace flash::reference
