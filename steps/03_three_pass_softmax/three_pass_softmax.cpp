// three_pass_softmax: softmax in three passes over tiles.
//
// The idea: never hold S or P. Take Br queries at a time, walk over the keys in tiles of Bc, and
// compute the scores of a tile whenever they are needed: for the row maximum, for the row sum, and
// for the output.
// Parent: safe_softmax. New: there are no N_q x N_kv matrices. One Br x Bc tile of scores is
// computed three times instead.
// Look at: the three loops over j, what each of them keeps, and which of them reads V.
// Gained: memory that does not grow with N, one tile per thread. Counter: for each tile of Q, K is
// read three times and V once. The price: 8 N_q N_kv d floating-point operations instead of
// 4 N_q N_kv d.
#include "steps/03_three_pass_softmax/three_pass_softmax.hpp"

#include "common/cpu/head.hpp"
#include "common/cpu/mask.hpp"
#include "common/cpu/parallel.hpp"
#include "common/cpu/tiles.hpp"

namespace three_pass_softmax {

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
    for (int64_t j = 0; j < Tc; ++j) { // pass 1: the maximum
        const Matrix S = scores(j);
        for (int64_t r = 0; r < rows; ++r) {
            m(r) = std::max(m(r), S.row(r).maxCoeff());
        }
    }

    Vector l = Vector::Zero(rows);
    for (int64_t j = 0; j < Tc; ++j) { // pass 2: the sum
        const Matrix S = scores(j);
        for (int64_t r = 0; r < rows; ++r) {
            l(r) += exponential(S.row(r).array() - shift(m(r))).sum();
        }
    }

    auto O_i = h.O.middleRows(i * Br, rows);
    O_i.setZero();
    for (int64_t j = 0; j < Tc; ++j) { // pass 3: the output
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

} // namespace three_pass_softmax
