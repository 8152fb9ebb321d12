// Lines of tokens for the tests of the rungs that take them, and the orders in which these are
// tried.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/harness/packed/packed_line.hpp"
#include "common/harness/program/random.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "steps/tests/device_rung.hpp"

namespace flash::tests {

using Lengths = std::vector<int64_t>;

/// A line of these sequences, and the rest of the problem.
struct LineSetup {
    Lengths queries, keys;
    int64_t heads = 2, kv_heads = 1, d = 64;
    bool causal = false;
    DType dtype = DType::bf16;
    int64_t loose = 0; // more than the longest sequence, in the bounds

    PackedShape shape() const {
        return {scaled({.batch = std::ssize(queries),
                        .heads = heads,
                        .kv_heads = kv_heads,
                        .q_len = std::ranges::max(queries) + loose,
                        .kv_len = std::ranges::max(keys) + loose,
                        .head_dim = d,
                        .causal = causal}),
                queries, keys};
    }
};

/// Lognormal, half of them below a quarter of `most`; every ninth is 0.
inline Lengths drawn(size_t sequences, int64_t most, uint64_t seed) {
    NormalGenerator normal(seed, 0);
    Lengths lengths(sequences);
    for (size_t b = 0; b < sequences; ++b) {
        const double one = static_cast<double>(most) / 4 * std::exp(normal());
        lengths[b] = b % 9 == 4 ? 0 : std::clamp<int64_t>(static_cast<int64_t>(one), 1, most);
    }
    return lengths;
}

const simt::Options orders[] = {
    {.cp_async = simt::CpAsync::late, .detect = true},
    {.schedule = {simt::Schedule::shuffle, 1}, .cp_async = simt::CpAsync::early, .detect = true},
    {.schedule = {simt::Schedule::reverse}, .cp_async = simt::CpAsync::late, .detect = true},
    {.schedule = {simt::Schedule::one_warp_ahead, 1},
     .cp_async = simt::CpAsync::late,
     .detect = true}};

} // namespace flash::tests
