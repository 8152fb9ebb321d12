// The causal mask of one tile of scores.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/attention.hpp"
#include "common/cpu/matrix.hpp"

namespace flash::cpu {

/// Sets the scores of keys that a query does not see to -inf. S holds the scores of queries i0, i0
/// + 1, ... against keys j0, j0 + 1, ... of one head. A tile in which every query sees every key is
/// left alone.
inline void mask(Matrix& S, const Problem& p, int64_t i0, int64_t j0) {
    if (j0 + S.cols() <= p.visible_keys(i0)) {
        return; // the first query of a tile sees the fewest keys
    }
    for (int64_t r = 0; r < S.rows(); ++r) {
        const int64_t visible = std::clamp<int64_t>(p.visible_keys(i0 + r) - j0, 0, S.cols());
        S.row(r).tail(S.cols() - visible).setConstant(-infinity);
    }
}

} // namespace flash::cpu
