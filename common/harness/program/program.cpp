#include "common/harness/program/program.hpp"

#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "common/harness/files/output_file.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/text.hpp"
#include "common/harness/program/limits.hpp"
#include "common/harness/program/progress.hpp"

namespace flash {

int Rung::program(int argc, char** argv) {
    int code = 0;
    const Failure failure = failure_of([&] {
        if (std::optional<Plan> plan = make_plan(*this, argc, argv)) {
            require_memory(plan->report, plan->options);
            carry_out(*this, *plan, name);
            code = print(*plan);
        }
    });
    return failure.code != 0 ? say(*this, failure) : code;
}

std::optional<Plan> make_plan(Rung& rung, int argc, const char* const* argv) {
    const std::optional<Options> options = parse_options(rung, argc, argv);
    if (!options) {
        return std::nullopt;
    }
    Report report;
    report.rung = &rung;
    report.input = options->input;
    report.seed = options->seed.value_or(0);
    report.dtype = options->dtype.value_or(rung.dtypes.at(0));
    report.problem = rung.problem(*options);
    report.flops = rung.flops(report.problem);
    report.rows = report.problem.lse_size();
    rung.plan(report, *options);
    require_supported(rung, report.problem, report.dtype);
    if (options->output) {
        require_writable(*options->output);
    }
    rung.backend().require_device();
    return Plan{*options, report};
}

namespace {

void write_output(const std::string& path, const Report& report, const AnyRun& run) {
    const Problem& p = report.problem;
    std::vector<std::vector<float>> values;
    std::vector<TensorToWrite> tensors;
    for (const TensorSpec& spec : report.rung->outputs(p, report.dtype)) {
        values.push_back(run.output(values.size()));
        tensors.push_back({in_lower_case(spec.name), spec.dtype, spec.shape, values.back()});
    }
    if (run.is_first()) {
        write_safetensors(path, std::move(tensors),
                          {{"rung", report.rung->name},
                           {"causal", p.causal ? "true" : "false"},
                           {"window", std::to_string(p.window)},
                           {"scale", std::to_string(p.scale)}});
    }
}

} // namespace

void carry_out(Rung& rung, Plan& plan, const std::string& program) {
    const Options& options = plan.options;
    Report& report = plan.report;
    Backend& backend = rung.backend();
    const Task task = rung.task(report, options);
    AnyRun& run = *task.run;
    {
        ProgressLine progress("running " + rung.name);
        report.seconds = backend.time([&] { run.run(); });
    }
    report.of_backend = backend.end_first_run(program);
    report.damage = run.damage();
    if (options.check) {
        ProgressLine progress("checking against the reference");
        report.verdict = task.judge(progress.callback(), options.check_rows);
    }
    if (!run.agree(report.ok())) {
        return;
    }
    if (options.output) {
        write_output(*options.output, report, run);
    }
    constexpr double quick = 1; // seconds
    if (run.agree(report.seconds < quick || !report.of_backend.empty())) {
        report.seconds = run.time();
    }
    if (options.bench) {
        ProgressLine progress("timing " + rung.name);
        report.benchmark = benchmark(run, backend, progress.callback(), options.repetitions);
        report.seconds = report.benchmark->median();
    }
}

int print(const Plan& plan) {
    const Report& report = plan.report;
    const std::string text = plan.options.json ? format_json(report) : format_text(report);
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
        throw Error("cannot write the report to the standard output");
    }
    if (!report.ok() && plan.options.output) {
        std::fprintf(stderr,
                     "%s: %s was not written, because the result is wrong; --no-check writes it\n",
                     report.rung->name.c_str(), plan.options.output->c_str());
    }
    return report.ok() ? 0 : 1;
}

Failure failure_of(const std::function<void()>& work) {
    try {
        work();
        return {};
    } catch (const KernelFault& fault) {
        return {1, fault.what()};
    } catch (const std::bad_alloc&) {
        return {2, "out of memory; try a smaller --batch, --heads, --q-len or --kv-len"};
    } catch (const std::exception& error) {
        return {2, error.what()};
    }
}

int say(const Rung& rung, const Failure& failure) {
    std::fprintf(stderr, "%s: %s\n", rung.name.c_str(), failure.why.c_str());
    return failure.code;
}

} // namespace flash
