// one_pass_softmax: softmax and output in one pass, the FlashAttention recurrence.
//
// The idea: what repairs the sum in two_pass_softmax also repairs the output. When the maximum
// grows, multiply both by exp(m - m_new). Then (m, l, O) is all that has to be known about a set of
// keys: `merge` combines the (m, l, O) of two sets into that of their union, and attention is the
// merge over all tiles of keys.
// Parent: two_pass_softmax. New: there is no second pass; O is rescaled along with l.
// Look at: merge. It is associative, so any order of tiles, and any tree, gives the same result up
// to rounding.
// Gained: the second computation of S. Counter: for each tile of Q, K and V are read once.
// First: Dao et al., "FlashAttention", 2022, algorithm 1. Flash-Decoding uses the same merge to
// join the parts when keys are split over processors.
#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"

#include "common/cpu/head.hpp"
#include "common/cpu/mask.hpp"
#include "common/cpu/parallel.hpp"
#include "common/cpu/tiles.hpp"

namespace one_pass_softmax {

using namespace flash::cpu;
using flash::Problem;

namespace {

/// What to subtract from the scores of a row: its maximum. For a row that sees no key, that is
/// -inf, and subtracting it would give NaN: 0 instead.
float shift(float m) { return m == -infinity ? 0 : m; }

} // namespace

Partial no_keys(int64_t rows, int64_t d) {
    return {Vector::Constant(rows, -infinity), Vector::Zero(rows), Matrix::Zero(rows, d)};
}

Partial attend_tile(const Problem& p, int64_t i0, int64_t j0, const ConstMatrixView& Q_i,
                    const ConstMatrixView& K_j, const ConstMatrixView& V_j) {
    Matrix S = p.scale * Q_i * K_j.transpose();
    mask(S, p, i0, j0);
    Vector m(S.rows()), l(S.rows());
    Matrix& P = S; // in place
    for (int64_t r = 0; r < S.rows(); ++r) {
        m(r) = S.row(r).maxCoeff();
        P.row(r) = exponential(S.row(r).array() - shift(m(r)));
        l(r) = P.row(r).sum();
    }
    return {m, l, P * V_j};
}

Partial merge(const Partial& a, const Partial& b) {
    Partial c{a.m.cwiseMax(b.m), Vector(a.l.rows()), Matrix(a.O.rows(), a.O.cols())};
    for (int64_t r = 0; r < c.m.rows(); ++r) {
        // 1 for the side that has the maximum, less than 1 for the other one
        const float a_factor = std::exp(a.m(r) - shift(c.m(r)));
        const float b_factor = std::exp(b.m(r) - shift(c.m(r)));
        c.l(r) = a_factor * a.l(r) + b_factor * b.l(r);
        c.O.row(r) = a_factor * a.O.row(r) + b_factor * b.O.row(r);
    }
    return c;
}

namespace {

/// O and LSE of tile i of the queries of one head.
void attend(const Problem& p, Head& h, int64_t i) {
    const Tiles Q(h.Q, Br, bytes_read.Q), K(h.K, Bc, bytes_read.K), V(h.V, Bc, bytes_read.V);
    const ConstMatrixView Q_i = Q[i];
    const int64_t rows = Q_i.rows();
    // the last query sees the most keys
    const int64_t Tc = count_blocks(p.visible_keys(i * Br + rows - 1), Bc);

    Partial seen = no_keys(rows, p.head_dim);
    for (int64_t j = 0; j < Tc; ++j) { // the only pass
        seen = merge(seen, attend_tile(p, i * Br, j * Bc, Q_i, K[j], V[j]));
    }

    for (int64_t r = 0; r < rows; ++r) {
        // l == 0: sees no key, O is already 0
        h.O.row(i * Br + r) = seen.O.row(r) / (seen.l(r) == 0 ? 1 : seen.l(r));
        h.LSE(i * Br + r) = seen.m(r) + std::log(seen.l(r));
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

} // namespace one_pass_softmax
