// What a packed rung does differently from a forward one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/harness/forward/forward_kind.hpp"
#include "common/harness/packed/line_options.hpp"
#include "common/harness/packed/packed.hpp"
#include "common/harness/packed/packed_line.hpp"

namespace flash {

class PackedKind final : public ForwardKind {
  public:
    explicit PackedKind(const PackedRung& rung, bool among_strangers = false);

    Help help() const override;
    void add_options(CommandLine& line) override;
    Problem problem(const Options& options) override;
    void plan(Report& report, const Options& options) override;
    Task task(const Report& report, const Options& options) override;
    std::vector<TensorSpec> outputs(const Problem& problem, DType dtype) const override;

    /// The B sequences, and before, between and behind them others of other lengths, which hold
    /// NaN.
    Way other_way(const Problem& problem) const override;

    /// The rung on a line; q, k and v of `line` are lines, too. Throws Error as on() does, and
    /// where require_lengths does.
    std::unique_ptr<AnyRun> on_line(const PackedShape& shape, const Inputs& line,
                                    size_t margin = AnyRun::default_margin) const;

    /// Compares each sequence with the reference, by itself.
    Verdict judge_line(const PackedShape& shape, const Inputs& line, std::span<const float> o,
                       std::span<const float> lse, const Progress& progress = {},
                       int64_t rows_of_head = 0) const;

  protected:
    std::unique_ptr<AnyRun> make_run(const Problem& problem, const Inputs& inputs,
                                     size_t margin) const override;
    Call call(const Problem& problem, DType dtype) const override;
    double host_bytes(const Problem& problem, DType dtype, bool check) const override;

  private:
    Call call_of(const PackedShape& shape, DType dtype) const;
    /// Of the command line, or of B sequences of N_q and N_kv.
    PackedShape shape_of(const Problem& problem) const;

    const PackedRung packed_;
    const bool among_strangers_;
    LineOptions options_;
    std::optional<PackedShape> shape_; // of the command line
};

} // namespace flash
