// What a paged rung adds to a forward one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/harness/forward/forward_kind.hpp"
#include "common/harness/paged/paged.hpp"
#include "common/harness/paged/paged_cache.hpp"

namespace flash {

class PagedKind final : public ForwardKind {
  public:
    explicit PagedKind(const PagedRung& rung, std::optional<int64_t> page = {})
        : ForwardKind(rung.forward), paged_(rung), page_(page) {}

    Help help() const override;
    void add_options(CommandLine& line) override;
    void plan(Report& report, const Options& options) override;
    void require_memory(const Report& report, const Options& options) const override;
    Task task(const Report& report, const Options& options) override;

    /// K and V in pages of 16 keys, and every sequence has N_kv of them.
    Way other_way(const Problem& problem) const override;

    /// The rung on pages. Throws Error when the table names a page that does not exist, and as on()
    /// does.
    std::unique_ptr<AnyRun> on_pages(const PagedCache& cache, DType dtype, std::span<const float> q,
                                     size_t margin = AnyRun::default_margin) const;

    /// Compares each sequence with the reference of its own length.
    Verdict judge_pages(const PagedCache& cache, DType dtype, std::span<const float> q,
                        std::span<const float> o, std::span<const float> lse,
                        const Progress& progress = {}, int64_t rows_of_head = 0) const;

  protected:
    std::unique_ptr<AnyRun> make_run(const Problem& problem, const Inputs& inputs,
                                     size_t margin) const override;

  private:
    bool in_pages() const { return page_ || lengths_given_; }

    const PagedRung paged_;
    std::optional<int64_t> page_;
    std::optional<std::string> lengths_given_; // "1000,0,37", or "random"
    std::vector<int64_t> lengths_;
};

} // namespace flash
