// The program of a rung, from the command line to the exit code.
#include <cstdio>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "common/harness/files/output_file.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/program/command_line.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/limits.hpp"
#include "common/harness/program/progress.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

/// Bytes on the host beside the tensors that the rung sees: the values as floats, what DeviceRun
/// keeps of them, and the reference's results (O and LSE in double, the baseline's O; or dQ, dK and
/// dV and theirs).
double host_bytes(const Rung& rung, const Problem& p, DType dtype, bool check) {
    const auto q = static_cast<double>(p.q_size()), kv = static_cast<double>(p.kv_size());
    const auto lse = static_cast<double>(p.lse_size());
    const double more = rung.is_backward() ? 1 : 0; // O and dO are inputs too, dK and dV outputs
    const double inputs =
        ((1 + 2 * more) * q + 2 * kv) * (sizeof(float) + static_cast<double>(dtype_bytes(dtype)));
    const double outputs = (q + lse + 2 * more * kv) * sizeof(float);
    const double reference = (q + 2 * more * kv) * (sizeof(double) + sizeof(float)) +
                             3 * lse * sizeof(double) + more * q * sizeof(double);
    return inputs + outputs + (check ? reference : 0);
}

void write_output(const std::string& path, const Report& report, const Outputs& outputs) {
    const Problem& p = report.problem;
    const std::vector<int64_t> q_shape = {p.batch, p.heads, p.q_len, p.head_dim};
    const std::vector<int64_t> kv_shape = {p.batch, p.kv_heads, p.kv_len, p.head_dim};
    std::vector<TensorToWrite> tensors = {{"dq", report.dtype, q_shape, outputs.d_q},
                                          {"dk", report.dtype, kv_shape, outputs.d_k},
                                          {"dv", report.dtype, kv_shape, outputs.d_v}};
    if (!report.rung.is_backward()) {
        tensors = {{"o", report.dtype, q_shape, outputs.o},
                   {"lse", DType::fp32, {p.batch, p.heads, p.q_len}, outputs.lse}};
    }
    write_safetensors(path, std::move(tensors),
                      {{"rung", report.rung.name},
                       {"causal", p.causal ? "true" : "false"},
                       {"scale", std::to_string(p.scale)}});
}

Report run(const Rung& rung, const Options& options) {
    Report report;
    report.rung = rung;
    report.input = options.input;
    report.seed = options.seed.value_or(0);
    // Everything that can be refused is refused before anything takes time.
    report.dtype = options.dtype.value_or(rung.dtypes().at(0));
    report.problem = make_problem(rung, options);
    const Problem& problem = report.problem;
    require_supported(rung, problem, report.dtype);
    if (options.output) {
        require_writable(*options.output);
    }
    Backend& backend = rung.backend();
    backend.require_device();
    require_memory(rung, problem, report.dtype, DeviceRun::default_margin,
                   host_bytes(rung, problem, report.dtype, options.check));

    HostTensors tensors;
    {
        ProgressLine progress("preparing the input");
        tensors = make_tensors(rung, problem, report.dtype, options, progress.callback());
    }
    if (rung.is_backward() && tensors.o.empty()) {
        ProgressLine progress("computing O and LSE");
        ForwardResult forward = rung.forward(problem, tensors.view(), progress.callback());
        tensors.o = std::move(forward.o);
        tensors.lse = std::move(forward.lse);
    }
    DeviceRun device(rung, problem, tensors.view());
    {
        ProgressLine progress("running " + rung.name);
        report.seconds = backend.time([&] { device.run(); });
    }
    report.of_backend = backend.end_first_run(rung.name);
    report.damage = device.damage();
    DeviceRun::Gradients gradients;
    std::vector<float> o, lse;
    Outputs outputs;
    if (rung.is_backward()) {
        gradients = device.gradients();
        outputs = {.d_q = gradients.d_q, .d_k = gradients.d_k, .d_v = gradients.d_v};
    } else {
        o = device.o();
        lse = device.lse();
        outputs = {.o = o, .lse = lse};
    }
    if (options.check) {
        ProgressLine progress("checking against the reference");
        report.verdict =
            rung.check(problem, tensors.view(), outputs, progress.callback(), options.check_rows);
    }
    if (!report.ok()) {
        return report;
    }
    if (options.output) {
        write_output(*options.output, report, outputs);
    }
    constexpr double quick = 1; // seconds
    if (report.seconds < quick || !report.of_backend.empty()) {
        report.seconds = device.time();
    }
    if (options.bench) {
        ProgressLine progress("timing " + rung.name);
        report.benchmark = benchmark(device, backend, progress.callback(), options.repetitions);
        report.seconds = report.benchmark->median();
    }
    return report;
}

/// The reasons of exit code 2, under the program's name.
int refuse(const Rung& rung, const char* reason) {
    std::fprintf(stderr, "%s: %s\n", rung.name.c_str(), reason);
    return 2;
}

} // namespace

int rung_main(const Rung& rung, int argc, char** argv) {
    try {
        const std::optional<Options> options = parse_options(rung, argc, argv);
        if (!options) {
            return 0;
        }
        const Report report = run(rung, *options);
        const std::string text = options->json ? format_json(report) : format_text(report);
        if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
            throw Error("cannot write the report to the standard output");
        }
        if (!report.ok() && options->output) {
            std::fprintf(
                stderr,
                "%s: %s was not written, because the result is wrong; --no-check writes it\n",
                rung.name.c_str(), options->output->c_str());
        }
        return report.ok() ? 0 : 1;
    } catch (const KernelFault& fault) {
        refuse(rung, fault.what());
        return 1;
    } catch (const std::bad_alloc&) {
        return refuse(rung, "out of memory; try a smaller --batch, --heads, --q-len or --kv-len");
    } catch (const std::exception& error) {
        return refuse(rung, error.what());
    }
}

} // namespace flash
