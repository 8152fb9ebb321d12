// Sequences on a line, on the host: their lengths, their tensors, and each of them by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/attention.hpp"
#include "common/harness/program/verdict.hpp"

namespace flash {

/// The lengths of a line's sequences.
struct PackedShape {
    Problem problem; // B sequences; N_q and N_kv are bounds of their lengths
    std::vector<int64_t> q_lengths, kv_lengths;

    int64_t total_q() const;
    int64_t total_kv() const;

    /// Sequence b as a problem of its own.
    Problem of_sequence(size_t b) const;

    /// One sequence with as many rows: its tensors have the line's sizes.
    Problem as_one() const;

    /// Of the whole line; with `gradients` of the backward pass.
    double flops(bool gradients = false) const;
};

/// 0, and where each of the sequences ends: cu_seqlens.
std::vector<int> ends_of(const std::vector<int64_t>& lengths);

/// Throws Error unless there is a length for each sequence, from 0 to its bound, and at least one
/// query and one key.
void require_lengths(const PackedShape& shape);

/// Q, K or V, and O, as a line (total, heads, d), and as single sequences (1, heads, N, d).
/// `offset` is the sequence's first row on the line.
std::vector<float> from_line(std::span<const float> line, int64_t heads, int64_t d, int64_t offset,
                             int64_t rows);
void to_line(std::span<float> line, int64_t heads, int64_t d, int64_t offset, int64_t rows,
             std::span<const float> sequence);

/// The same for LSE, (heads, total) and (1, heads, N).
std::vector<float> lse_from_line(std::span<const float> line, int64_t heads, int64_t offset,
                                 int64_t rows);
void lse_to_line(std::span<float> line, int64_t heads, int64_t offset, int64_t rows,
                 std::span<const float> sequence);

} // namespace flash
