#include "common/harness/backward/backward.hpp"

#include <utility>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/progress.hpp"
#include "common/harness/program/run_report.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {
namespace {

struct BackwardTensors : HostTensors {
    std::vector<float> o, lse, d_o;
    Inputs view() const { return {dtype, q, k, v, o, lse, d_o, sink}; }
};

/// O, LSE and dO, where the file holds them; one that it holds must have its shape.
void read_more(const Problem& p, const std::string& path, BackwardTensors& tensors) {
    SafetensorsReader file(path);
    const std::vector<int64_t> q_shape = {p.batch, p.heads, p.q_len, p.head_dim};
    const std::vector<int64_t> lse_shape = {p.batch, p.heads, p.q_len};
    const auto read = [&](const char* name, std::vector<float>& values,
                          const std::vector<int64_t>& shape, DType dtype) {
        if (!file.tensors().contains(name)) {
            return;
        }
        if (file.info(name).shape != shape) {
            throw Error(path + ": " + name + " has the shape " +
                        format_shape(file.info(name).shape) + ", but with this q it must have " +
                        format_shape(shape));
        }
        values = file.read(name);
        convert(values, dtype, path + ": " + name);
    };
    read("do", tensors.d_o, q_shape, tensors.dtype);
    if (file.tensors().contains("o") != file.tensors().contains("lse")) {
        throw Error(
            path +
            ": holds one of o and lse; a backward rung needs both, or none and makes them itself");
    }
    read("o", tensors.o, q_shape, tensors.dtype);
    read("lse", tensors.lse, lse_shape, DType::fp32);
}

/// dO is random where the file holds none, and O and LSE are the reference's.
BackwardTensors input_of(const BackwardRung& rung, const Report& report, const Options& options) {
    const Problem& p = report.problem;
    BackwardTensors tensors;
    {
        ProgressLine progress("preparing the input");
        static_cast<HostTensors&>(tensors) =
            make_tensors(p, report.dtype, options, progress.callback());
        if (options.input) {
            read_more(p, *options.input, tensors);
        }
        // behind Q, K, V and the sink; beside a file it has a sequence of its own
        if (tensors.d_o.empty()) {
            const int64_t before = p.q_size() + 2 * p.kv_size() + (p.sink ? p.heads : 0);
            tensors.d_o.resize(static_cast<size_t>(p.q_size()));
            fill_with_normal_numbers(tensors.d_o, options.input ? 0 : before, report.dtype,
                                     report.seed, progress.callback());
        }
    }
    if (tensors.o.empty()) {
        ProgressLine progress("computing O and LSE");
        ForwardResult forward = rung.forward(p, tensors.view(), progress.callback());
        tensors.o = std::move(forward.o);
        tensors.lse = std::move(forward.lse);
    }
    return tensors;
}

template <class T>
std::function<void(const Call::Pointers&)> bound(const Problem& p, const Backward<T>& function) {
    return [p, function](const Call::Pointers& at) {
        const float* const sink = p.sink ? at.in<float>(6) : nullptr;
        float* const dsink = p.sink ? at.out<float>(3) : nullptr;
        function(p, at.in<T>(0), at.in<T>(1), at.in<T>(2), sink, at.in<T>(3), at.in<float>(4),
                 at.in<T>(5), at.out<T>(0), at.out<T>(1), at.out<T>(2), dsink, at.workspace);
    };
}

class BackwardKind final : public Rung {
  public:
    explicit BackwardKind(const BackwardRung& rung) : Rung(rung), rung_(rung) {
        has_gradients = true;
        unordered_dQ = rung.unordered_dQ;
        window_and_sink = rung.window_and_sink;
    }

    Help help() const override {
        return {.title = "dQ, dK, dV from Q, K, V, O, LSE, dO",
                .input = ". It may hold do (else random), and o with lse (else computed)",
                .output = window_and_sink ? "dq, dk and dv, with a sink dsink," : "dq, dk and dv",
                .file_example = " --input qkv.safetensors --output gradients.safetensors\n"
                                "      tensors q, k, v, do from a file, dq, dk, dv to another\n"};
    }

    double flops(const Problem& problem) const override { return problem.backward_flops(); }

    Task task(const Report& report, const Options& options) override {
        const auto tensors = std::make_shared<BackwardTensors>(input_of(rung_, report, options));
        const std::shared_ptr<AnyRun> run = on(report.problem, tensors->view());
        return {run, [=, check = rung_.check, p = report.problem](const Progress& progress,
                                                                  int64_t rows) {
                    const auto d_q = run->output(0), d_k = run->output(1), d_v = run->output(2),
                               d_sink = p.sink ? run->output(3) : std::vector<float>();
                    return check(p, tensors->view(),
                                 {.d_q = d_q, .d_k = d_k, .d_v = d_v, .d_sink = d_sink}, progress,
                                 rows);
                }};
    }

    std::vector<TensorSpec> outputs(const Problem& p, DType dtype) const override {
        const std::vector<int64_t> q = {p.batch, p.heads, p.q_len, p.head_dim},
                                   kv = {p.batch, p.kv_heads, p.kv_len, p.head_dim};
        std::vector<TensorSpec> all = {{"dQ", dtype, q}, {"dK", dtype, kv}, {"dV", dtype, kv}};
        if (p.sink) {
            all.push_back({"dsink", DType::fp32, {p.heads}});
        }
        return all;
    }

    std::vector<NamedError> errors(const Verdict& v) const override {
        std::vector<NamedError> all = {{"dQ", v.d_q.error, v.d_q.bound},
                                       {"dK", v.d_k.error, v.d_k.bound},
                                       {"dV", v.d_v.error, v.d_v.bound}};
        if (v.d_sink) {
            all.push_back({"dsink", v.d_sink->error, v.d_sink->bound});
        }
        return all;
    }

  private:
    Call call(const Problem& p, DType dtype) const override {
        const std::vector<int64_t> q = {p.batch, p.heads, p.q_len, p.head_dim},
                                   kv = {p.batch, p.kv_heads, p.kv_len, p.head_dim};
        Call call = call_with(p,
                              {{"Q", dtype, q},
                               {"K", dtype, kv},
                               {"V", dtype, kv},
                               {"O", dtype, q},
                               {"LSE", DType::fp32, {p.batch, p.heads, p.q_len}},
                               {"dO", dtype, q}},
                              outputs(p, dtype));
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

    double host_bytes(const Problem& p, DType dtype, bool check) const override {
        const auto q = static_cast<double>(p.q_size()), kv = static_cast<double>(p.kv_size());
        const auto lse = static_cast<double>(p.lse_size());
        const double inputs =
            (3 * q + 2 * kv) * (sizeof(float) + static_cast<double>(dtype_bytes(dtype)));
        const double outputs = (q + lse + 2 * kv) * sizeof(float);
        // dQ, dK and dV in double and the baseline's, LSE, and O
        const double reference = (q + 2 * kv) * (sizeof(double) + sizeof(float)) +
                                 3 * lse * sizeof(double) + q * sizeof(double);
        return inputs + outputs + (check ? reference : 0);
    }

    const BackwardRung rung_;
};

} // namespace

Rung& rung_of(const BackwardRung& rung) { return kept(std::make_unique<BackwardKind>(rung)); }

} // namespace flash
