// backward_cpu: The backward pass, tile by tile: P is computed anew from LSE.
//
// The idea: the forward pass has thrown S and P away and kept one number for each row, LSE. It is
// all that the backward pass needs. P_ij = exp(S_ij - LSE_i) at once, without a maximum and without
// a sum over the row: any tile of P can be made from its rows of Q and K alone. The derivative of
// softmax needs a sum over the row, sum_k P_ik dP_ik. But it is also delta_i = sum_x dO_ix O_ix,
// and so it costs d products per row, once, in place of N. The five formulas are
//
//   dV = P^T dO,   dP = dO V^T,   dS = P o (dP - delta),   dQ = scale dS K,   dK = scale dS^T Q
//
// with o element by element.
//
// Parent: one_pass_softmax. New: no maximum, no running sum, no merge, and five products per tile
// in place of two. Look at: the inner loop. All that it reads of the row is LSE_i and delta_i.
// Gained: gradients in O(N) extra memory.
// First published: Dao and others, "FlashAttention" (2022), algorithm 4; delta is equation 4 of its
// appendix B.
#include "steps/41_backward_cpu/backward_cpu.hpp"

#include <algorithm>

#include "common/cpu/mask.hpp"
#include "common/cpu/matrix.hpp"
#include "common/cpu/parallel.hpp"

namespace backward_cpu {

using namespace flash::cpu;
using flash::Problem;

namespace {

constexpr int64_t Br = 128; // queries in a tile
constexpr int64_t Bc = 128; // keys in a tile

/// What one query head reads and writes. The heads of a group share dK and dV, and add to them.
struct Head {
    ConstMatrixView Q, K, V, O;
    const float* LSE;
    ConstMatrixView dO;
    MatrixView dQ, dK, dV;
};

/// dQ of one head, and its part of dK and dV.
void add_gradients(const Problem& p, Head& h) {
    Matrix S, dS; // of one pair of tiles
    for (int64_t i0 = 0; i0 < p.q_len; i0 += Br) {
        const int64_t rows = std::min(Br, p.q_len - i0);
        const auto Q_i = h.Q.middleRows(i0, rows), O_i = h.O.middleRows(i0, rows),
                   dO_i = h.dO.middleRows(i0, rows);
        auto dQ_i = h.dQ.middleRows(i0, rows);
        const Vector delta = dO_i.cwiseProduct(O_i).rowwise().sum();
        dQ_i.setZero();

        const int64_t keys = p.visible_keys(i0 + rows - 1); // the last query sees the most
        for (int64_t j0 = 0; j0 < keys; j0 += Bc) {
            const int64_t columns = std::min(Bc, p.kv_len - j0);
            const auto K_j = h.K.middleRows(j0, columns), V_j = h.V.middleRows(j0, columns);
            auto dK_j = h.dK.middleRows(j0, columns), dV_j = h.dV.middleRows(j0, columns);

            S.noalias() = p.scale * Q_i * K_j.transpose();
            mask(S, p, i0, j0);
            Matrix& P = S; // in place
            for (int64_t r = 0; r < rows; ++r) {
                // A score is at most LSE. Where rounding of large ones says otherwise, the sign of
                // their difference is wrong.
                const float LSE = h.LSE[i0 + r];
                // A row that sees no key has LSE = -inf, and -inf - -inf is NaN; with 0 in its
                // place, P is 0.
                P.row(r) = exponential(-(S.row(r).array() - (LSE == -infinity ? 0 : LSE)).abs());
            }
            dV_j.noalias() += P.transpose() * dO_i;
            dS.noalias() = dO_i * V_j.transpose(); // dP, and then dS in its place
            dS.array() = p.scale * P.array() * (dS.array().colwise() - delta.array());
            dQ_i.noalias() += dS * K_j;
            dK_j.noalias() += dS.transpose() * Q_i;
        }
    }
}

} // namespace

void attention_backward(const Problem& p, const float* Q, const float* K, const float* V,
                        const float* O, const float* LSE, const float* dO, float* dQ, float* dK,
                        float* dV) {
    const int64_t group = p.heads / p.kv_heads, d = p.head_dim;
    // One thread per K/V head, because all query heads of its group add to the same dK and dV.
    parallel_for(p.batch * p.kv_heads, [&](int64_t kv_head) {
        const int64_t kv = kv_head * p.kv_len * d;
        MatrixView(dK + kv, p.kv_len, d).setZero();
        MatrixView(dV + kv, p.kv_len, d).setZero();
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
            const int64_t q = head * p.q_len * d;
            Head h{.Q = {Q + q, p.q_len, d},
                   .K = {K + kv, p.kv_len, d},
                   .V = {V + kv, p.kv_len, d},
                   .O = {O + q, p.q_len, d},
                   .LSE = LSE + head * p.q_len,
                   .dO = {dO + q, p.q_len, d},
                   .dQ = {dQ + q, p.q_len, d},
                   .dK = {dK + kv, p.kv_len, d},
                   .dV = {dV + kv, p.kv_len, d}};
            add_gradients(p, h);
        }
    });
}

} // namespace backward_cpu
