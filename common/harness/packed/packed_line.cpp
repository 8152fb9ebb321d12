#include "common/harness/packed/packed_line.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace flash {
namespace {

int64_t sum(const std::vector<int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

} // namespace

int64_t PackedShape::total_q() const { return sum(q_lengths); }
int64_t PackedShape::total_kv() const { return sum(kv_lengths); }

Problem PackedShape::of_sequence(size_t b) const {
    Problem p = problem;
    p.batch = 1;
    p.q_len = q_lengths[b];
    p.kv_len = kv_lengths[b];
    return p;
}

Problem PackedShape::as_one() const {
    Problem p = problem;
    p.batch = 1;
    p.q_len = total_q();
    p.kv_len = total_kv();
    return p;
}

double PackedShape::flops(bool gradients) const {
    double all = 0;
    for (size_t b = 0; b < q_lengths.size(); ++b) {
        const Problem p = of_sequence(b);
        all += gradients ? p.backward_flops() : p.flops();
    }
    return all;
}

std::vector<int> ends_of(const std::vector<int64_t>& lengths) {
    std::vector<int> ends = {0};
    for (const int64_t length : lengths) {
        ends.push_back(ends.back() + static_cast<int>(length));
    }
    return ends;
}

void require_lengths(const PackedShape& shape) {
    const auto require = [&](const std::vector<int64_t>& lengths, int64_t bound, const char* what) {
        if (std::ssize(lengths) != shape.problem.batch) {
            throw Error("there are " + std::to_string(lengths.size()) + " lengths of " + what +
                        " for " + std::to_string(shape.problem.batch) + " sequences");
        }
        constexpr int64_t most = 2'000'000'000; // rows of a line, which cu_seqlens counts in int32
        int64_t all = 0;
        for (const int64_t length : lengths) {
            if (length < 0 || length > bound || (all += length) > most) {
                throw Error("a sequence must have 0 to " + std::to_string(bound) + " " + what +
                            ", and all together at most " + std::to_string(most) + ", got " +
                            std::to_string(length));
            }
        }
        if (all == 0) {
            throw Error(std::string("some sequence must have ") + what + "; all lengths are 0");
        }
    };
    require(shape.q_lengths, shape.problem.q_len, "queries");
    require(shape.kv_lengths, shape.problem.kv_len, "keys");
}

std::vector<float> from_line(std::span<const float> line, int64_t heads, int64_t d, int64_t offset,
                             int64_t rows) {
    std::vector<float> sequence(static_cast<size_t>(heads * rows * d));
    auto to = sequence.begin();
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
            to = std::copy_n(line.begin() + ((offset + i) * heads + h) * d, d, to);
        }
    }
    return sequence;
}

void to_line(std::span<float> line, int64_t heads, int64_t d, int64_t offset, int64_t rows,
             std::span<const float> sequence) {
    auto from = sequence.begin();
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < rows; ++i, from += d) {
            std::copy_n(from, d, line.begin() + ((offset + i) * heads + h) * d);
        }
    }
}

std::vector<float> lse_from_line(std::span<const float> line, int64_t heads, int64_t offset,
                                 int64_t rows) {
    const int64_t total = std::ssize(line) / heads;
    std::vector<float> sequence(static_cast<size_t>(heads * rows));
    auto to = sequence.begin();
    for (int64_t h = 0; h < heads; ++h) {
        to = std::copy_n(line.begin() + h * total + offset, rows, to);
    }
    return sequence;
}

void lse_to_line(std::span<float> line, int64_t heads, int64_t offset, int64_t rows,
                 std::span<const float> sequence) {
    const int64_t total = std::ssize(line) / heads;
    auto from = sequence.begin();
    for (int64_t h = 0; h < heads; ++h, from += rows) {
        std::copy_n(from, rows, line.begin() + h * total + offset);
    }
}

} // namespace flash
