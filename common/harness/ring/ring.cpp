#include <algorithm>
#include <array>
#include <utility>

#include "common/harness/program/command_line.hpp"
#include "common/harness/program/limits.hpp"
#include "common/harness/program/program.hpp"
#include "common/harness/program/progress.hpp"
#include "common/harness/ring/ring_kind.hpp"
#include "common/harness/ring/ring_run.hpp"

namespace flash {
namespace {

template <class T>
std::function<void(const Call::Pointers&)> bound(const Problem& whole, const Shard& shard,
                                                 const std::vector<Exchange*>& exchanges,
                                                 ForwardOfRank<T> function) {
    return [=](const Call::Pointers& at) {
        const int portions = static_cast<int>(exchanges.size());
        for (int i = 0; i < portions; ++i) {
            const Portion portion(whole, i, portions);
            const Problem part = of_heads(whole, portion.end - portion.first);
            const int64_t KV_row = portion.first * shard.rows();
            const int64_t row = KV_row * (whole.heads / whole.kv_heads), d = whole.head_dim;
            function(part, shard, at.in<T>(0) + row * d, at.in<T>(1) + KV_row * d,
                     at.in<T>(2) + KV_row * d, at.out<T>(0) + row * d, at.out<float>(1) + row,
                     at.workspace, *exchanges[static_cast<size_t>(i)]);
        }
    };
}

} // namespace

Rung& rung_of(const RingRung& rung, int ranks, int portions) {
    return kept(std::make_unique<RingKind>(rung, ranks, portions));
}

void require_ring(const Problem& problem, int ranks, int portions) {
    constexpr int most = 4096; // far beyond any ring, and far from where an int overflows
    if (ranks > most) {
        throw Error("a ring can have " + std::to_string(most) + " ranks at most, got " +
                    std::to_string(ranks));
    }
    if (problem.q_len != problem.kv_len) {
        throw Error("a ring needs q-len = kv-len, because a rank holds the same rows of Q, K and "
                    "V; got " +
                    std::to_string(problem.q_len) + " and " + std::to_string(problem.kv_len));
    }
    if (const int64_t kv_heads = problem.batch * problem.kv_heads; portions > kv_heads) {
        throw Error("--portions can be " + std::to_string(kv_heads) +
                    " at most, because each needs a K/V head, got " + std::to_string(portions));
    }
}

Help RingKind::help() const {
    return {.examples = "  mpirun -np 2 " + name +
                        " --causal --q-len 1000\n"
                        "      the sequence spread over two processes\n"};
}

void RingKind::add_options(CommandLine& line) {
    ranks_.reset();
    portions_.reset();
    line.add_count("--ranks", "P", ranks_,
                   "Compute all of P ranks in this process, one after the other, so that nothing "
                   "travels");
    line.add_count("--portions", "N", portions_,
                   "Send the heads round in N portions, one after the other: the workspace is for "
                   "one (1)");
}

int64_t RingKind::workspace_of_rank(const Problem& whole, const Shard& shard) const {
    return ring_.workspace_bytes(of_heads(whole, Portion::largest(whole, portions())), shard);
}

Call RingKind::call_of_rank(const Problem& whole, DType dtype, const Shard& shard,
                            const std::vector<Exchange*>& exchanges) const {
    Call call = this->call(problem_of(whole, shard), dtype);
    call.workspace_bytes = [this, whole, shard] { return workspace_of_rank(whole, shard); };
    call.takes_workspace = true;
    call.function = dtype == DType::fp16 ? bound(whole, shard, exchanges, ring_.fp16)
                                         : bound(whole, shard, exchanges, ring_.bf16);
    return call;
}

std::unique_ptr<AnyRun> RingKind::make_run(const Problem& problem, const Inputs& inputs,
                                           size_t margin) const {
    if (ranks() == 1) {
        return ForwardKind::make_run(problem, inputs, margin);
    }
    const std::array tensors{inputs.q, inputs.k, inputs.v};
    const auto input = [&](size_t i, const std::vector<Range>& ranges) {
        std::vector<float> part;
        for (const Range& range : ranges) {
            const auto from = tensors[i].begin() + range.first;
            part.insert(part.end(), from, from + range.count);
        }
        return part;
    };
    return std::make_unique<RingRun>(*this, problem, inputs.dtype, ranks(), nullptr, input, margin);
}

Rung::Way RingKind::other_way(const Problem& problem) const {
    if (ranks() > 1 || problem.q_len != problem.kv_len) {
        return {};
    }
    return {std::make_unique<RingKind>(ring_, 3, 1), "with 3 ranks"};
}

/// Where each process is a rank, its input is made a tensor after the other, and process 0 checks a
/// head at a time, with inputs that are made for it: as floats all of them may be too large for one
/// host.
Task RingKind::task(const Report& report, const Options& options) {
    if (processes_ == nullptr) {
        return ForwardKind::task(report, options);
    }
    const Problem p = report.problem;
    const DType dtype = report.dtype;
    ProgressLine line("preparing the input");
    const auto input = [&](size_t i, const std::vector<Range>& ranges) {
        return make_ranges(p, dtype, options, i, ranges,
                           [&](double done) { line.update((static_cast<double>(i) + done) / 3); });
    };
    const auto run = std::make_shared<RingRun>(*this, p, dtype, ranks(), processes_, input);
    const auto judge_heads = [=, this](const Progress& progress,
                                       int64_t rows) -> std::optional<Verdict> {
        const Problem one = of_heads(p, 1);
        const int64_t kv_heads = p.batch * p.kv_heads;
        Verdict all;
        for (int64_t head = 0; head < kv_heads; ++head) {
            const std::vector<float> o = run->output(0, head * one.heads, one.heads),
                                     lse = run->output(1, head * one.heads, one.heads);
            if (!run->is_first()) {
                continue;
            }
            const HostTensors tensors = make_heads(p, dtype, options, head, 1, [](double) {});
            all.add(judge(one, tensors.view(), o, lse, {}, rows),
                    "K/V head " + std::to_string(head) + " of " + std::to_string(kv_heads) +
                        ", by itself: ");
            progress(static_cast<double>(head + 1) / static_cast<double>(kv_heads));
        }
        return run->is_first() ? std::optional(all) : std::nullopt;
    };
    return {run, judge_heads};
}

void RingKind::require_memory(const Report& report, const Options& options) const {
    const Problem& whole = report.problem;
    const auto rank_of = [&](int rank) { return Shard{whole.q_len, ranks(), rank}; };
    Call call = this->call(whole, report.dtype);
    double on_host = host_bytes(whole, report.dtype, options.check);
    if (processes_ != nullptr) {
        // Its inputs are floats one after the other. Process 0 checks a head at a time, and holds
        // all of O and LSE only to write them to a file.
        const bool first = processes_->rank() == 0;
        const Shard shard = rank_of(processes_->rank());
        const Problem part = problem_of(whole, shard);
        const auto q = static_cast<double>(part.q_size()), kv = static_cast<double>(part.kv_size());
        const auto outputs = static_cast<double>(whole.q_size() + whole.lse_size());
        call = call_of_rank(whole, report.dtype, shard, {});
        on_host =
            (q + 2 * kv) * static_cast<double>(dtype_bytes(report.dtype)) +
            std::max(q, kv) * sizeof(float) +
            (first && options.check ? host_bytes(of_heads(whole, 1), report.dtype, true) : 0) +
            (first && options.output ? outputs * sizeof(float) : 0);
    } else if (ranks() > 1) {
        call.workspace_bytes = [&] {
            int64_t bytes = 0;
            for (int rank = 0; rank < ranks(); ++rank) {
                bytes += workspace_of_rank(whole, rank_of(rank));
            }
            return bytes;
        };
    }
    flash::require_memory(call, AnyRun::default_margin, on_host);
}

/// What can be refused only when it is known how many processes there are.
void RingKind::plan_ring(Report& report) {
    const int processes = processes_ == nullptr ? 1 : processes_->size();
    if (ranks_ && processes > 1) {
        throw Error("with --ranks one process computes all ranks: leave out --ranks, or mpirun");
    }
    ranks_ = ranks_.value_or(processes);
    if (ranks() > 1) {
        require_ring(report.problem, ranks(), portions());
        report.kind_lines =
            "ring      " + std::to_string(ranks()) + " ranks, " +
            (processes == 1 ? "one after the other in one process" : "each a process") +
            (portions() == 1 ? "" : ", the heads in " + std::to_string(portions()) + " portions") +
            "\n";
    } else if (portions_) {
        throw Error("--portions is for a ring of several ranks: add --ranks 2, or mpirun");
    }
    report.kind_fields = {{"ranks", std::to_string(ranks())},
                          {"processes", std::to_string(processes)},
                          {"portions", std::to_string(portions())}};
}

/// All processes come here with the same command line. While they still agree on what to do, one of
/// them says what is wrong; afterwards some wait for others, so one that fails ends them all.
int RingKind::program(int argc, char** argv) {
    std::optional<Plan> plan;
    Failure refused = failure_of([&] { plan = make_plan(*this, argc, argv); });
    if (refused.code == 0 && !plan) { // --help
        return 0;
    }
    std::unique_ptr<Processes> started;
    if (const Failure alone = failure_of([&] { started = ring_.processes(); }); alone.code != 0) {
        return say(*this, alone);
    }
    processes_ = started != nullptr && started->size() > 1 ? started.get() : nullptr;
    const bool first = processes_ == nullptr || processes_->rank() == 0;
    if (refused.code == 0) {
        refused = failure_of([&] {
            plan_ring(plan->report);
            require_memory(plan->report, plan->options);
        });
    }
    if (processes_ != nullptr) {
        refused.why = processes_->first_text(refused.why);
        refused.code = first && refused.why.empty() ? 0 : 2;
        processes_->share(&refused.code, sizeof refused.code);
    }
    if (refused.code != 0) {
        return first ? say(*this, refused) : refused.code;
    }
    if (!first) {
        ProgressLine::silence();
    }
    const std::string rank = std::to_string(processes_ == nullptr ? 0 : processes_->rank());
    int code = 0;
    const Failure failure = failure_of([&] {
        carry_out(*this, *plan, first ? name : name + "." + rank);
        code = first ? print(*plan) : 0;
    });
    if (failure.code == 0) {
        return code;
    }
    if (processes_ == nullptr) {
        return say(*this, failure);
    }
    say(*this, {failure.code, "process " + rank + ": " + failure.why});
    processes_->end_all(failure.code);
    return failure.code;
}

} // namespace flash
