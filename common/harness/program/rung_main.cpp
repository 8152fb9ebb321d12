// The program of a rung, from the command line to the exit code.
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "common/harness/files/output_file.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/program/command_line.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/limits.hpp"
#include "common/harness/program/paged_run.hpp"
#include "common/harness/program/progress.hpp"
#include "common/harness/program/ring_run.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

/// Bytes on the host beside the tensors that the rung sees: the values as floats, what DeviceRun
/// keeps of them, and the reference's results (O and LSE in double, the baseline's O and the range
/// of V; or dQ, dK and dV and theirs).
double host_bytes(const Rung& rung, const Problem& p, DType dtype, bool check) {
    const auto q = static_cast<double>(p.q_size()), kv = static_cast<double>(p.kv_size());
    const auto lse = static_cast<double>(p.lse_size());
    const double more = rung.is_backward() ? 1 : 0; // O and dO are inputs too, dK and dV outputs
    const double inputs =
        ((1 + 2 * more) * q + 2 * kv) * (sizeof(float) + static_cast<double>(dtype_bytes(dtype)));
    const double outputs = (q + lse + 2 * more * kv) * sizeof(float);
    const double reference = (q + 2 * more * kv) * (sizeof(double) + sizeof(float)) +
                             3 * lse * sizeof(double) +
                             (more > 0 ? sizeof(double) : 2 * sizeof(float)) * q;
    return inputs + outputs + (check ? reference : 0);
}

/// The same of a process that is a rank of a ring. Its inputs are floats one after the other, and
/// process 0 checks a head at a time; it holds all of O and LSE only to write them to a file.
double host_bytes_of_rank(const Rung& rung, const Report& report, const Options& options,
                          const Problem& part, bool first) {
    const Problem& whole = report.problem;
    const auto element = static_cast<double>(dtype_bytes(report.dtype));
    const auto q = static_cast<double>(part.q_size()), kv = static_cast<double>(part.kv_size());
    const auto outputs = static_cast<double>(whole.q_size() + whole.lse_size());
    return (q + 2 * kv) * element + std::max(q, kv) * sizeof(float) +
           (first && options.check ? host_bytes(rung, of_heads(whole, 1), report.dtype, true) : 0) +
           (first && options.output ? outputs * sizeof(float) : 0);
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

/// Everything that can be refused is refused before anything takes time.
Report plan(const Rung& rung, const Options& options) {
    Report report;
    report.rung = rung;
    report.input = options.input;
    report.seed = options.seed.value_or(0);
    report.dtype = options.dtype.value_or(rung.dtypes().at(0));
    report.problem = make_problem(rung, options);
    report.flops = rung.flops(report.problem);
    if (options.paged()) {
        report.lengths = make_lengths(report.problem, options);
        report.page = page_of(options);
    }
    require_supported(rung, report.problem, report.dtype);
    if (options.output) {
        require_writable(*options.output);
    }
    rung.backend().require_device();
    return report;
}

/// Whether there is memory for the plan, on this process's device and its host.
void require_memory(const Report& report, const Options& options, Processes* processes) {
    const Problem& whole = report.problem;
    Rung rung = report.rung;
    Problem problem = whole;
    double on_host = host_bytes(rung, whole, report.dtype, options.check);
    if (options.paged()) { // K and V again, in pages
        on_host += 2 * static_cast<double>(whole.kv_size()) * sizeof(float);
    }
    if (report.ranks > 1) {
        const int from = processes == nullptr ? 0 : processes->rank();
        const int to = processes == nullptr ? report.ranks : from + 1;
        rung.workspace_bytes = [&, from, to](const Problem&) {
            int64_t bytes = 0;
            for (int rank = from; rank < to; ++rank) {
                bytes += workspace_bytes(rung, whole, {whole.q_len, report.ranks, rank},
                                         report.portions);
            }
            return bytes;
        };
    }
    if (processes != nullptr) {
        problem = problem_of(whole, {whole.q_len, report.ranks, processes->rank()});
        on_host = host_bytes_of_rank(rung, report, options, problem, processes->rank() == 0);
    }
    flash::require_memory(rung, problem, report.dtype, DeviceRun::default_margin, on_host);
}

/// The verdict on all heads, one after the other, each with inputs that are made for it: all of
/// them may be too large for one host. Every process calls it, and process 0 gets the verdict.
std::optional<Verdict> check_heads(const Report& report, const Options& options,
                                   const RingRun& ring, bool first, const Progress& progress) {
    const Problem& p = report.problem;
    const Problem one = of_heads(p, 1);
    const int64_t kv_heads = p.batch * p.kv_heads;
    Verdict all;
    for (int64_t head = 0; head < kv_heads; ++head) {
        const std::vector<float> o = ring.o(head * one.heads, one.heads);
        const std::vector<float> lse = ring.lse(head * one.heads, one.heads);
        if (!first) {
            continue;
        }
        const HostTensors tensors = make_heads(p, report.dtype, options, head, 1, [](double) {});
        all.add(report.rung.check(one, tensors.view(),
                                  {.o = o, .lse = lse, .rounded_sums = report.rung.rounded_sums},
                                  {}, options.check_rows),
                "K/V head " + std::to_string(head) + " of " + std::to_string(kv_heads) +
                    ", by itself: ");
        progress(static_cast<double>(head + 1) / static_cast<double>(kv_heads));
    }
    return first ? std::optional(all) : std::nullopt;
}

/// This process's rank of a ring, with the input of its shard: a tensor after the other, because as
/// floats all of them may be too large for a host.
std::unique_ptr<RingRun> make_rank(const Report& report, const Options& options,
                                   Processes& processes) {
    const Problem& p = report.problem;
    const Shard shard{p.q_len, processes.size(), processes.rank()};
    auto ring = std::make_unique<RingRun>(report.rung, p, report.dtype, processes, report.portions);
    ProgressLine progress(processes.rank() == 0 ? "preparing the input" : "");
    for (size_t i = 0; i < 3; ++i) {
        const auto part = [&, i](double done) {
            progress.update((static_cast<double>(i) + done) / 3);
        };
        ring->upload(i, make_shard(p, report.dtype, options, shard, i, part));
    }
    return ring;
}

/// `processes`: null where this process works alone. Process 0 checks and writes.
void run(Report& report, const Options& options, Processes* processes) {
    const Rung& rung = report.rung;
    const Problem& problem = report.problem;
    Backend& backend = rung.backend();
    const bool first = processes == nullptr || processes->rank() == 0;
    HostTensors tensors; // where this process works alone
    if (processes == nullptr) {
        ProgressLine progress("preparing the input");
        tensors = make_tensors(rung, problem, report.dtype, options, progress.callback());
    }
    if (rung.is_backward() && tensors.o.empty()) {
        ProgressLine progress("computing O and LSE");
        ForwardResult forward = rung.forward(problem, tensors.view(), progress.callback());
        tensors.o = std::move(forward.o);
        tensors.lse = std::move(forward.lse);
    }
    std::unique_ptr<AnyRun> made;
    RingRun* ring = nullptr; // of several processes
    std::optional<PagedCache> cache;
    if (report.page > 0) {
        cache = in_pages(problem, tensors.view(), report.page, report.lengths, report.seed);
        report.flops = cache->flops();
        made = std::make_unique<PagedRun>(rung, *cache, tensors.dtype, tensors.q);
    } else if (report.ranks == 1) {
        made = std::make_unique<DeviceRun>(rung, problem, tensors.view());
    } else if (processes == nullptr) {
        made = std::make_unique<RingRun>(rung, problem, tensors.view(), report.ranks,
                                         DeviceRun::default_margin, report.portions);
    } else {
        std::unique_ptr<RingRun> rank = make_rank(report, options, *processes);
        ring = rank.get();
        made = std::move(rank);
    }
    AnyRun& device = *made;
    {
        ProgressLine progress(first ? "running " + rung.name : "");
        report.seconds = backend.time([&] { device.run(); });
    }
    report.of_backend = backend.end_first_run(
        first ? rung.name : rung.name + "." + std::to_string(processes->rank()));
    report.damage = device.damage();
    AnyRun::Gradients gradients;
    std::vector<float> o, lse;
    Outputs outputs;
    if (rung.is_backward()) {
        gradients = device.gradients();
        outputs = {.d_q = gradients.d_q, .d_k = gradients.d_k, .d_v = gradients.d_v};
    } else if (ring == nullptr || options.output) {
        o = device.o();
        lse = device.lse();
        outputs = {.o = o, .lse = lse, .rounded_sums = rung.rounded_sums};
    }
    if (options.check) {
        ProgressLine progress(first ? "checking against the reference" : "");
        if (cache) {
            report.verdict = check_paged(rung, *cache, tensors.dtype, tensors.q, outputs,
                                         progress.callback(), options.check_rows);
        } else if (ring != nullptr) {
            report.verdict = check_heads(report, options, *ring, first, progress.callback());
        } else {
            report.verdict = rung.check(problem, tensors.view(), outputs, progress.callback(),
                                        options.check_rows);
        }
    }
    if (!device.agree(report.ok())) {
        return;
    }
    if (options.output && first) {
        write_output(*options.output, report, outputs);
    }
    constexpr double quick = 1; // seconds
    if (device.agree(report.seconds < quick || !report.of_backend.empty())) {
        report.seconds = device.time();
    }
    if (options.bench) {
        ProgressLine progress(first ? "timing " + rung.name : "");
        report.benchmark = benchmark(device, backend, progress.callback(), options.repetitions);
        report.seconds = report.benchmark->median();
    }
}

/// Prints the report and returns the exit code.
int print(const Report& report, const Options& options) {
    const std::string text = options.json ? format_json(report) : format_text(report);
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
        throw Error("cannot write the report to the standard output");
    }
    if (!report.ok() && options.output) {
        std::fprintf(stderr,
                     "%s: %s was not written, because the result is wrong; --no-check writes it\n",
                     report.rung.name.c_str(), options.output->c_str());
    }
    return report.ok() ? 0 : 1;
}

/// What went wrong, for the user, and the exit code for it; 0: nothing.
struct Failure {
    int code = 0;
    std::string why;
};

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

/// The rest of a ring's program. All processes have come here with the same command line. While
/// they still agree on what to do, one of them says what is wrong; afterwards some wait for others,
/// so one that fails ends them all.
int run_ring(const Rung& rung, const std::optional<Options>& options, Report& report,
             Failure refused) {
    std::unique_ptr<Processes> started;
    if (const Failure alone = failure_of([&] { started = rung.ring.processes(); });
        alone.code != 0) {
        return say(rung, alone);
    }
    Processes* const processes = started->size() > 1 ? started.get() : nullptr;
    const bool first = started->rank() == 0;
    if (refused.code == 0) {
        refused = failure_of([&] {
            report.processes = started->size();
            report.ranks = options->ranks.value_or(started->size());
            report.portions = options->portions.value_or(1);
            if (options->ranks && processes != nullptr) {
                throw Error("with --ranks one process computes all ranks: leave out --ranks, or "
                            "mpirun");
            }
            if (report.ranks > 1) {
                require_ring(report.problem, report.ranks, report.portions);
            } else if (options->portions) {
                throw Error("--portions is for a ring of several ranks: add --ranks 2, or mpirun");
            }
            require_memory(report, *options, processes);
        });
    }
    if (processes != nullptr) {
        refused.why = processes->first_text(refused.why);
        refused.code = first && refused.why.empty() ? 0 : 2;
        processes->share(&refused.code, sizeof refused.code);
    }
    if (refused.code != 0) {
        return first ? say(rung, refused) : refused.code;
    }
    int code = 0;
    const Failure failure = failure_of([&] {
        run(report, *options, processes);
        code = first ? print(report, *options) : 0;
    });
    if (failure.code != 0) {
        say(rung, processes == nullptr
                      ? failure
                      : Failure{failure.code,
                                "process " + std::to_string(started->rank()) + ": " + failure.why});
        if (processes != nullptr) {
            processes->end_all(failure.code);
        }
        return failure.code;
    }
    return code;
}

} // namespace

int rung_main(const Rung& rung, int argc, char** argv) {
    std::optional<Options> options;
    Report report;
    const Failure refused = failure_of([&] {
        options = parse_options(rung, argc, argv);
        if (options) {
            report = plan(rung, *options);
        }
    });
    if (refused.code == 0 && !options) { // --help
        return 0;
    }
    if (rung.is_ring()) {
        return run_ring(rung, options, report, refused);
    }
    if (refused.code != 0) {
        return say(rung, refused);
    }
    int code = 0;
    const Failure failure = failure_of([&] {
        require_memory(report, *options, nullptr);
        run(report, *options, nullptr);
        code = print(report, *options);
    });
    return failure.code != 0 ? say(rung, failure) : code;
}

} // namespace flash
