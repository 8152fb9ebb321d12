#include "common/harness/forward/forward.hpp"

#include <utility>

#include "common/harness/forward/forward_kind.hpp"
#include "common/harness/program/progress.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

template <class T>
std::function<void(const Call::Pointers&)> bound(const Problem& p, const Forward<T>& function) {
    return [p, function](const Call::Pointers& at) {
        const float* const sink = p.sink ? at.in<float>(3) : nullptr;
        function(p, at.in<T>(0), at.in<T>(1), at.in<T>(2), sink, at.out<T>(0), at.out<float>(1),
                 at.workspace);
    };
}

} // namespace

Rung& rung_of(const ForwardRung& rung) { return kept(std::make_unique<ForwardKind>(rung)); }

ForwardKind::ForwardKind(const ForwardRung& rung) : Rung(rung), rung_(rung) {
    overflows = rung.overflows;
    rounded_sums = rung.rounded_sums;
    window_and_sink = rung.window_and_sink;
    head_dims_v = rung.head_dims_v;
}

std::vector<TensorSpec> ForwardKind::outputs(const Problem& p, DType dtype) const {
    return {{"O", dtype, {p.batch, p.heads, p.q_len, p.v_dim()}},
            {"LSE", DType::fp32, {p.batch, p.heads, p.q_len}}};
}

Call ForwardKind::call(const Problem& p, DType dtype) const {
    const std::vector<int64_t> q = {p.batch, p.heads, p.q_len, p.head_dim},
                               k = {p.batch, p.kv_heads, p.kv_len, p.head_dim},
                               v = {p.batch, p.kv_heads, p.kv_len, p.v_dim()};
    Call call =
        call_with(p, {{"Q", dtype, q}, {"K", dtype, k}, {"V", dtype, v}}, outputs(p, dtype));
    if (p.sink) {
        call.inputs.push_back({"sink", DType::fp32, {p.heads}});
    }
    switch (dtype) {
    case DType::fp32:
        call.function = bound(p, rung_.fp32);
        break;
    case DType::fp16:
        call.function = bound(p, rung_.fp16);
        break;
    case DType::bf16:
        call.function = bound(p, rung_.bf16);
        break;
    }
    return call;
}

double ForwardKind::host_bytes(const Problem& p, DType dtype, bool check) const {
    const auto q = static_cast<double>(p.q_size()), k = static_cast<double>(p.kv_size());
    const auto v = static_cast<double>(p.v_size()), o = static_cast<double>(p.o_size());
    const auto lse = static_cast<double>(p.lse_size());
    const double inputs = (q + k + v) * (sizeof(float) + static_cast<double>(dtype_bytes(dtype)));
    const double outputs = (o + lse) * sizeof(float);
    // O and LSE in double, the baseline's O, and the range of V
    const double reference = o * (sizeof(double) + 3 * sizeof(float)) + 3 * lse * sizeof(double);
    return inputs + outputs + (check ? reference : 0);
}

HostTensors input_of(const Report& report, const Options& options) {
    ProgressLine progress("preparing the input");
    return make_tensors(report.problem, report.dtype, options, progress.callback());
}

Task ForwardKind::task(const Report& report, const Options& options) {
    const auto tensors = std::make_shared<HostTensors>(input_of(report, options));
    const std::shared_ptr<AnyRun> run = on(report.problem, tensors->view());
    return {run, [=, this, p = report.problem](const Progress& progress, int64_t rows) {
                return judge(p, tensors->view(), run->o(), run->lse(), progress, rows);
            }};
}

Verdict ForwardKind::judge(const Problem& problem, const Inputs& inputs, std::span<const float> o,
                           std::span<const float> lse, const Progress& progress,
                           int64_t rows_of_head) const {
    return rung_.check(problem, inputs, {.o = o, .lse = lse, .rounded_sums = rounded_sums},
                       progress, rows_of_head);
}

std::vector<NamedError> ForwardKind::errors(const Verdict& v) const {
    return {{"O", v.o_error, v.o_bound,
             v.says_little ? "          too large scores for fp32 to tell keys apart: all that is "
                             "known\n          is that O must lie between the least and the "
                             "largest V of its column\n"
                           : ""},
            {"LSE", v.lse_error, v.lse_bound}};
}

} // namespace flash
