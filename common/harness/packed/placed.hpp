// The suite's problems on a line: B sequences as they are, or among strangers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/harness/packed/packed_line.hpp"
#include "common/harness/program/any_run.hpp"

namespace flash {

/// Where a problem's sequences are on a line.
class Placed {
  public:
    /// Among strangers there are sequences of other lengths before, between and behind those of
    /// `problem`, and they hold NaN.
    Placed(const Problem& problem, bool among_strangers);

    PackedShape shape; // of the line

    /// Tensors (B, heads, N, d) as lines (total, heads, d). Throws Error if they have another size.
    std::vector<float> queries(std::span<const float> values) const;
    std::vector<float> keys(std::span<const float> values) const;

    /// LSE, (B, H, N_q), as (H, total_q).
    std::vector<float> lse(std::span<const float> values) const;

    /// What an output is: it has rows for queries, or for keys, or is LSE.
    enum Kind { of_queries, of_keys, of_lse };

    /// A run on this line, whose outputs become tensors of the problem again.
    std::unique_ptr<AnyRun> back(std::unique_ptr<AnyRun> line, std::vector<Kind> outputs) const;

    /// Of an output on the line, the part that is the problem's.
    std::vector<float> own(const std::vector<float>& line, Kind kind) const;

  private:
    struct Side {
        std::vector<int64_t> offsets; // the first row of each of the problem's sequences
        int64_t rows, heads, d;       // of one
        int64_t total = 0;            // rows of the line
    };
    static std::vector<float> on_line(std::span<const float> values, const Side& side);

    Side q_, kv_;
};

} // namespace flash
