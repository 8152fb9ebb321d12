#include "common/harness/packed/placed.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace flash {
namespace {

/// The strangers among the suite's sequences: queries without keys, keys without queries, nothing
/// at all, one row, and more than a tile has. Before the first of its own there are all of them,
/// and more empty ones than a warp has lanes.
struct Stranger {
    int64_t queries, keys;
};
constexpr Stranger strangers[] = {{3, 0}, {0, 0}, {1, 1}, {0, 70}, {70, 20}};
constexpr int empty_ones = 33;

/// A run on a line as one of the problem's tensors (B, H, N, d), which the suite judges.
class SequencesOfLine final : public AnyRun {
  public:
    SequencesOfLine(std::unique_ptr<AnyRun> line, Placed placed, std::vector<Placed::Kind> outputs)
        : line_(std::move(line)), placed_(std::move(placed)), outputs_(std::move(outputs)) {}

    void poison() override { line_->poison(); }
    void run() override { line_->run(); }
    double time() override { return line_->time(); }
    size_t workspace_bytes() const override { return line_->workspace_bytes(); }
    std::string damage() const override { return line_->damage(); }
    std::vector<float> output(size_t i) const override {
        return placed_.own(line_->output(i), outputs_.at(i));
    }

  private:
    const std::unique_ptr<AnyRun> line_;
    const Placed placed_;
    const std::vector<Placed::Kind> outputs_;
};

void require_size(std::span<const float> values, int64_t size) {
    if (std::ssize(values) != size) {
        throw Error("a tensor has " + std::to_string(values.size()) +
                    " elements, the problem needs " + std::to_string(size));
    }
}

} // namespace

Placed::Placed(const Problem& p, bool among_strangers)
    : shape{p, {}, {}}, q_{{}, p.q_len, p.heads, p.head_dim}, kv_{{},
                                                                  p.kv_len,
                                                                  p.kv_heads,
                                                                  p.head_dim} {
    const auto append = [&](int64_t queries, int64_t keys) {
        shape.q_lengths.push_back(queries);
        shape.kv_lengths.push_back(keys);
        q_.total += queries;
        kv_.total += keys;
    };
    if (among_strangers) {
        for (const Stranger& one : strangers) {
            append(one.queries, one.keys);
        }
        for (int n = 0; n < empty_ones; ++n) {
            append(0, 0);
        }
    }
    for (int64_t b = 0; b < p.batch; ++b) {
        q_.offsets.push_back(q_.total);
        kv_.offsets.push_back(kv_.total);
        append(p.q_len, p.kv_len);
        if (among_strangers) { // the first of them has 70 queries
            const auto from_behind = static_cast<size_t>(b) % std::size(strangers) + 1;
            append(strangers[std::size(strangers) - from_behind].queries, 5);
        }
    }
    shape.problem.batch = std::ssize(shape.q_lengths);
    shape.problem.q_len = std::ranges::max(shape.q_lengths);
    shape.problem.kv_len = std::ranges::max(shape.kv_lengths);
}

std::vector<float> Placed::on_line(std::span<const float> values, const Side& side) {
    const int64_t size = side.heads * side.rows * side.d; // of a sequence
    require_size(values, std::ssize(side.offsets) * size);
    std::vector<float> line(static_cast<size_t>(side.total * side.heads * side.d),
                            std::numeric_limits<float>::quiet_NaN());
    const auto elements = static_cast<size_t>(size);
    for (size_t b = 0; b < side.offsets.size(); ++b) {
        to_line(line, side.heads, side.d, side.offsets[b], side.rows,
                values.subspan(b * elements, elements));
    }
    return line;
}

std::vector<float> Placed::queries(std::span<const float> values) const {
    return on_line(values, q_);
}
std::vector<float> Placed::keys(std::span<const float> values) const {
    return on_line(values, kv_);
}

std::vector<float> Placed::lse(std::span<const float> values) const {
    const int64_t size = q_.heads * q_.rows; // of a sequence
    require_size(values, std::ssize(q_.offsets) * size);
    std::vector<float> line(static_cast<size_t>(q_.heads * q_.total),
                            std::numeric_limits<float>::quiet_NaN());
    const auto elements = static_cast<size_t>(size);
    for (size_t b = 0; b < q_.offsets.size(); ++b) {
        lse_to_line(line, q_.heads, q_.offsets[b], q_.rows, values.subspan(b * elements, elements));
    }
    return line;
}

std::vector<float> Placed::own(const std::vector<float>& line, Kind kind) const {
    const Side& side = kind == of_keys ? kv_ : q_;
    std::vector<float> all;
    for (const int64_t offset : side.offsets) {
        const std::vector<float> one = kind == of_lse
                                           ? lse_from_line(line, side.heads, offset, side.rows)
                                           : from_line(line, side.heads, side.d, offset, side.rows);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

std::unique_ptr<AnyRun> Placed::back(std::unique_ptr<AnyRun> line,
                                     std::vector<Kind> outputs) const {
    return std::make_unique<SequencesOfLine>(std::move(line), *this, std::move(outputs));
}

} // namespace flash
