#pragma once

#include "common/attention.hpp"
#include "common/cpu/matrix.hpp"

namespace one_pass_softmax {

inline constexpr int64_t Br = 128; // queries in a tile
inline constexpr int64_t Bc = 128; // keys in a tile

/// What a set of keys says about a tile of queries: the softmax and the output before the division.
/// One row per query; m = -inf, l = 0 and O = 0 in the rows of queries that see none of these keys.
struct Partial {
    flash::cpu::Vector m; // maximum of the scores
    flash::cpu::Vector l; // sum of exp(S - m)
    flash::cpu::Matrix O; // sum of exp(S - m) V, not divided by l
};

/// The Partial of no keys at all.
Partial no_keys(int64_t rows, int64_t d);

/// The Partial of one tile of keys. Q_i starts at query i0 of its head, K_j and V_j at key j0.
Partial attend_tile(const flash::Problem& p, int64_t i0, int64_t j0,
                    const flash::cpu::ConstMatrixView& Q_i, const flash::cpu::ConstMatrixView& K_j,
                    const flash::cpu::ConstMatrixView& V_j);

/// The Partial of the keys of a and of b together. Up to rounding, the order of merging does not
/// matter: merge is associative and commutative, and no_keys is its neutral element.
Partial merge(const Partial& a, const Partial& b);

/// O and LSE of every head; see common/attention.hpp for shapes and layout.
void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE);

} // namespace one_pass_softmax
