// A paged rung on one problem: K and V laid into pages, the table, and a length for each sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/harness/program/any_run.hpp"
#include "common/harness/program/device_run.hpp"
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

    /// Floating-point operations of all sequences.
    double flops() const;
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

/// Lengths of B sequences: lognormal, sigma 1, half of them below a quarter of N_kv, none above it.
std::vector<int64_t> random_lengths(const Problem& problem, uint64_t seed);

class PagedRun final : public AnyRun {
  public:
    /// `q` as in the problem's Inputs. Throws Error when the table names a page that does not
    /// exist, and as DeviceRun does.
    PagedRun(const Rung& rung, const PagedCache& cache, DType dtype, std::span<const float> q,
             size_t margin = DeviceRun::default_margin);

    void poison() override { run_->poison(); }
    void run() override { run_->run(); }
    double time() override { return run_->time(); }
    std::vector<float> o() const override { return run_->o(); }
    std::vector<float> lse() const override { return run_->lse(); }
    size_t workspace_bytes() const override { return run_->workspace_bytes(); }
    std::string damage() const override;

  private:
    struct Numbers {
        std::string name;
        std::vector<int> uploaded; // margins included
        std::unique_ptr<Memory> memory;
    };
    Numbers upload(Backend& backend, const std::string& name, const std::vector<int>& numbers);

    size_t margin_;
    Numbers table_, lengths_;
    std::unique_ptr<DeviceRun> run_;
};

/// Compares each sequence with the reference of its own length.
Verdict check_paged(const Rung& rung, const PagedCache& cache, DType dtype,
                    std::span<const float> q, const Outputs& outputs, const Progress& progress = {},
                    int64_t rows_of_head = 0);

} // namespace flash
