// two_pass_softmax: softmax in two passes, by the online sum.
//
// The idea: find the maximum and the sum in one pass. Keep the sum relative to the maximum so far.
// When the maximum grows from m to m_new, every term exp(x - m) in the sum has to become
// exp(x - m_new), and one factor does that to all of them:
//     l = l * exp(m - m_new) + sum of exp(x - m_new) over the new scores
// Parent: three_pass_softmax. New: its passes 1 and 2 are one loop.
// Look at: the three lines with m_new, and their order.
// Gained: one of three computations of S. Counter: for each tile of Q, K is read twice and V once.
// First: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3.
#include "steps/04_two_pass_softmax/two_pass_softmax.hpp"

#include "common/cpu/head.hpp"
#include "common/cpu/mask.hpp"
#include "common/cpu/parallel.hpp"
#include "common/cpu/tiles.hpp"

namespace two_pass_softmax {

using namespace flash::cpu;
using flash::Problem;

namespace {

/// What to subtract from the scores of a row: its maximum. For a row that sees no key, that is
/// -inf, and subtracting it would give NaN: 0 instead.
float shift(float m) { return m == -infinity ? 0 : m; }

/// O and LSE of tile i of the queries of one head.
void attend(const Problem& p, Head& h, int64_t i) {
    const Tiles Q(h.Q, Br, bytes_read.Q), K(h.K, Bc, bytes_read.K), V(h.V, Bc, bytes_read.V);
    const ConstMatrixView Q_i = Q[i];
    const int64_t rows = Q_i.rows();
    // the last query sees the most keys
    const int64_t Tc = count_blocks(p.visible_keys(i * Br + rows - 1), Bc);
    const auto scores = [&](int64_t j) {
        Matrix S = p.scale * Q_i * K[j].transpose();
        mask(S, p, i * Br, j * Bc);
        return S;
    };

    Vector m = Vector::Constant(rows, -infinity);
    Vector l = Vector::Zero(rows);
    for (int64_t j = 0; j < Tc; ++j) { // pass 1: the maximum and the sum
        const Matrix S = scores(j);
        for (int64_t r = 0; r < rows; ++r) {
            const float m_new = std::max(m(r), S.row(r).maxCoeff());
            l(r) = l(r) * std::exp(m(r) - shift(m_new)) +
                   exponential(S.row(r).array() - shift(m_new)).sum();
            m(r) = m_new;
        }
    }

    auto O_i = h.O.middleRows(i * Br, rows);
    O_i.setZero();
    for (int64_t j = 0; j < Tc; ++j) { // pass 2: the output
        Matrix P = scores(j);
        for (int64_t r = 0; r < rows; ++r) {
            P.row(r) = exponential(P.row(r).array() - shift(m(r)));
        }
        O_i.noalias() += P * V[j];
    }

    for (int64_t r = 0; r < rows; ++r) {
        O_i.row(r) /= l(r) == 0 ? 1 : l(r); // l == 0: the query sees no key, its O is already 0
        h.LSE(i * Br + r) = m(r) + std::log(l(r));
    }
}

} // namespace

void attention(const Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    const int64_t Tr = count_blocks(p.q_len, Br);
    parallel_for(p.batch * p.heads * Tr, [&](int64_t tile) {
        Head h = head(p, tile / Tr, Q, K, V, O, LSE);
        attend(p, h, tile % Tr);
    });
}

} // namespace two_pass_softmax
