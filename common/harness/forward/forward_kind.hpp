// What forward rungs do. Kinds that add something to them begin here.
#pragma once

#include <memory>
#include <vector>

#include "common/harness/forward/forward.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {

class ForwardKind : public Rung {
  public:
    explicit ForwardKind(const ForwardRung& rung);

    Task task(const Report& report, const Options& options) override;
    std::vector<TensorSpec> outputs(const Problem& problem, DType dtype) const override;
    std::vector<NamedError> errors(const Verdict& verdict) const override;

    /// The verdict on O and LSE.
    Verdict judge(const Problem& problem, const Inputs& inputs, std::span<const float> o,
                  std::span<const float> lse, const Progress& progress, int64_t rows_of_head) const;

  protected:
    /// A kind whose description is another one; of `rung_`, its functions are empty.
    template <class Described>
    ForwardKind(const Described& described, const ForwardRung& rung)
        : Rung(described), rung_(rung) {}

    Call call(const Problem& problem, DType dtype) const override;
    std::unique_ptr<AnyRun> make_run(const Problem& problem, const Inputs& inputs,
                                     size_t margin) const override;
    double host_bytes(const Problem& problem, DType dtype, bool check) const override;

    const ForwardRung rung_;
};

/// Its input is random or from a file, and made at once.
HostTensors input_of(const Report& report, const Options& options);

} // namespace flash
