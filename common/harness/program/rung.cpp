#include "common/harness/program/rung.hpp"

#include <algorithm>

#include "common/harness/program/command_line.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/limits.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {

Rung& kept(std::unique_ptr<Rung> rung) {
    static std::vector<std::unique_ptr<Rung>> all;
    return *all.emplace_back(std::move(rung));
}

bool Rung::supports(DType type) const { return std::ranges::count(dtypes, type) > 0; }

int64_t Rung::usual_head_dim() const {
    const bool has_64 = head_dims.empty() || std::ranges::count(head_dims, 64) > 0;
    return has_64 ? 64 : head_dims.front();
}

int64_t Rung::head_dim_v_of(int64_t d) const {
    const auto nth = static_cast<size_t>(std::ranges::find(head_dims, d) - head_dims.begin());
    return nth < head_dims_v.size() ? head_dims_v[nth] : d;
}

std::unique_ptr<AnyRun> Rung::on(const Problem& problem, const Inputs& inputs,
                                 size_t margin) const {
    validate(problem);
    require_supported(*this, problem, inputs.dtype);
    return make_run(problem, inputs, margin);
}

Problem Rung::problem(const Options& options) { return make_problem(*this, options); }

Call Rung::call_with(const Problem& problem, std::vector<TensorSpec> inputs,
                     std::vector<TensorSpec> outputs) const {
    std::function<int64_t()> workspace_bytes;
    if (workspace_bytes_ != nullptr) {
        workspace_bytes = [problem, bytes = workspace_bytes_] { return bytes(problem); };
    }
    return {name,
            &backend(),
            std::move(inputs),
            std::move(outputs),
            std::move(workspace_bytes),
            takes_workspace_,
            {}};
}

std::unique_ptr<AnyRun> Rung::make_run(const Problem& problem, const Inputs& inputs,
                                       size_t margin) const {
    Call one = call(problem, inputs.dtype);
    std::vector given = {inputs.q, inputs.k, inputs.v, inputs.o, inputs.lse, inputs.d_o};
    given.resize(one.inputs.size());
    if (problem.sink) {
        given.back() = inputs.sink;
    }
    return std::make_unique<DeviceRun>(std::move(one), given, margin);
}

int64_t Rung::workspace_bytes(const Problem& problem, DType dtype) const {
    const Call one = call(problem, dtype);
    return one.workspace_bytes ? one.workspace_bytes() : 0;
}

void Rung::require_memory(const Report& report, const Options& options) const {
    flash::require_memory(call(report.problem, report.dtype), AnyRun::default_margin,
                          host_bytes(report.problem, report.dtype, options.check));
}

} // namespace flash
