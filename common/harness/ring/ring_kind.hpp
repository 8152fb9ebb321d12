// What a ring adds to a forward rung.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/harness/forward/forward_kind.hpp"
#include "common/harness/ring/ring.hpp"

namespace flash {

class RingKind final : public ForwardKind {
  public:
    RingKind(const RingRung& rung, int ranks, int portions)
        : ForwardKind(rung.alone), ring_(rung), ranks_(ranks), portions_(portions) {}

    Help help() const override;
    void add_options(CommandLine& line) override;
    void require_memory(const Report& report, const Options& options) const override;
    Task task(const Report& report, const Options& options) override;
    int program(int argc, char** argv) override;

    /// Where N_q = N_kv, three ranks: with ranks before and after another one, and lengths that
    /// they seldom divide.
    Way other_way(const Problem& problem) const override;

    /// How one rank runs it: its tensors are those of problem_of(whole, shard). The heads go round
    /// in portions, one after the other, and each has its exchange, which may be that of others,
    /// too.
    Call call_of_rank(const Problem& whole, DType dtype, const Shard& shard,
                      const std::vector<Exchange*>& exchanges) const;

    int ranks() const { return ranks_.value_or(1); }
    int portions() const { return portions_.value_or(1); }

  protected:
    std::unique_ptr<AnyRun> make_run(const Problem& problem, const Inputs& inputs,
                                     size_t margin) const override;

  private:
    void plan_ring(Report& report);
    int64_t workspace_of_rank(const Problem& whole, const Shard& shard) const;

    const RingRung ring_;
    std::optional<int> ranks_, portions_;
    Processes* processes_ = nullptr; // each of which is a rank; null: this process alone
};

/// Throws Error unless a ring of so many ranks can solve the problem in so many portions.
void require_ring(const Problem& problem, int ranks, int portions);

} // namespace flash
