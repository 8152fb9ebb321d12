// What a packed backward rung does differently from a backward one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/harness/packed/line_options.hpp"
#include "common/harness/packed/packed_backward.hpp"
#include "common/harness/packed/packed_line.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {

class PackedBackwardKind final : public Rung {
  public:
    explicit PackedBackwardKind(const PackedBackwardRung& rung, bool among_strangers = false);

    Help help() const override;
    void add_options(CommandLine& line) override;
    Problem problem(const Options& options) override;
    void plan(Report& report, const Options& options) override;
    Task task(const Report& report, const Options& options) override;
    std::vector<TensorSpec> outputs(const Problem& problem, DType dtype) const override;
    std::vector<NamedError> errors(const Verdict& verdict) const override;

    /// As PackedKind's.
    Way other_way(const Problem& problem) const override;

    /// The rung on a line; all tensors of `line` are lines, too, and LSE is (H, total_q). Throws
    /// Error as on() does, and where require_lengths does.
    std::unique_ptr<AnyRun> on_line(const PackedShape& shape, const Inputs& line,
                                    size_t margin = AnyRun::default_margin) const;

    /// Compares the gradients of each sequence with the reference, by itself.
    Verdict judge_line(const PackedShape& shape, const Inputs& line, const Outputs& outputs,
                       const Progress& progress = {}, int64_t rows_of_head = 0) const;

    /// O and LSE of a line whose O and LSE are empty, sequence by sequence.
    ForwardResult forward_on_line(const PackedShape& shape, const Inputs& line,
                                  const Progress& progress = {}) const;

  protected:
    std::unique_ptr<AnyRun> make_run(const Problem& problem, const Inputs& inputs,
                                     size_t margin) const override;
    Call call(const Problem& problem, DType dtype) const override;
    double host_bytes(const Problem& problem, DType dtype, bool check) const override;

  private:
    Call call_of(const PackedShape& shape, DType dtype) const;
    PackedShape shape_of(const Problem& problem) const;

    const PackedBackwardRung packed_;
    const bool among_strangers_;
    LineOptions options_;
    std::optional<PackedShape> shape_; // of the command line
};

} // namespace flash
