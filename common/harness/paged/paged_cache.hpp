// K and V laid into pages, the table, and a length for each sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "common/harness/program/verdict.hpp"

namespace flash {

/// K and V of all sequences, in pages, on the host.
struct PagedCache {
    Problem problem; // kv_len is the most keys that a sequence may have
    int page = 64;
    bool heads_first = true; // (pages, H_kv, page, d), else (pages, page, H_kv, d)
    std::vector<int> table;  // (B, most_pages())
    std::vector<int> lengths;
    std::vector<float> k, v; // NaN in what no length covers

    int most_pages() const { return static_cast<int>((problem.kv_len + page - 1) / page); }
    int64_t page_stride() const { return problem.kv_heads * page * problem.head_dim; }
    int64_t head_stride() const { return heads_first ? page * problem.head_dim : problem.head_dim; }
    int64_t row_stride() const {
        return heads_first ? problem.head_dim : problem.kv_heads * problem.head_dim;
    }
    int64_t pages() const { return static_cast<int64_t>(k.size()) / page_stride(); }

    /// Of the row of a key, in k and v.
    int64_t offset(int64_t sequence, int64_t kv_head, int64_t key) const;

    /// The problem that one sequence is by itself. Of length 0 there is none.
    Problem of_sequence(int64_t sequence) const;

    /// Its K or V as a tensor, (H_kv, length, d).
    std::vector<float> of_sequence(int64_t sequence, const std::vector<float>& pages) const;
};

/// Lays the first keys of each sequence into pages, in random order among pages that nobody uses.
/// What the table says behind a sequence's length is no page's number. So many first pages of every
/// sequence are those of sequence 0, as far as both have them. Throws Error as require_lengths
/// does.
PagedCache in_pages(const Problem& problem, const Inputs& inputs, int page,
                    const std::vector<int64_t>& lengths, uint64_t seed, bool heads_first = true,
                    int shared = 0);

/// Throws Error unless the page size is possible and there is a length from 0 to N_kv for each
/// sequence.
void require_lengths(const Problem& problem, int64_t page, const std::vector<int64_t>& lengths);

/// Throws Error unless each page that the table names exists: the kernel, which reads it alone,
/// cannot refuse it.
void require_table(const PagedCache& cache);

/// Lengths of B sequences: lognormal, sigma 1, half of them below a quarter of N_kv, none above it.
std::vector<int64_t> random_lengths(const Problem& problem, uint64_t seed);

} // namespace flash
