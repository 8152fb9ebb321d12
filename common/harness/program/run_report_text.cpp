#include <algorithm>
#include <cstdio>

#include "common/harness/files/text.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

std::string format(const char* pattern, auto... values) {
    char text[256];
    std::snprintf(text, sizeof text, pattern, values...);
    return text;
}

std::string format_seconds(double seconds) {
    return seconds < 1e-3 ? format("%.1f us", seconds * 1e6)
           : seconds < 1  ? format("%.2f ms", seconds * 1e3)
                          : format("%.3f s", seconds);
}

std::string format_speed(double flops, double seconds) {
    const double giga = flops / seconds / 1e9;
    return giga < 1000 ? format("%.1f GFLOP/s", giga) : format("%.1f TFLOP/s", giga / 1000);
}

std::string mask_of(const Problem& p) {
    const std::string mask = p.window > 0 ? "window " + std::to_string(p.window)
                             : p.causal   ? "causal"
                                          : "full";
    return p.sink ? mask + ", sink" : mask;
}

std::string head_dims_of(const Problem& p) {
    return std::to_string(p.head_dim) +
           (p.two_head_dims() ? " d_v=" + std::to_string(p.v_dim()) : "");
}

std::string time_lines(const Report& report) {
    const std::string time = "time      " + format_seconds(report.seconds) + ", " +
                             format_speed(report.flops, report.seconds);
    if (!report.benchmark) {
        return time + " (one run; --bench times many)\n";
    }
    const Benchmark& bench = *report.benchmark;
    std::string lines =
        time +
        format(": median of %zu runs with cold caches, after %d to warm up\n", bench.seconds.size(),
               bench.warm_ups) +
        "          " + format_seconds(bench.minimum()) + " to " + format_seconds(bench.maximum()) +
        format(", spread %.1f%%\n", 100 * (bench.maximum() - bench.minimum()) / bench.median());
    if (bench.cut_short()) {
        lines += format("          fewer than %d runs: the median says less\n", Benchmark::fewest);
    }
    lines += "memory    " +
             (bench.peak_memory ? format_bytes(static_cast<double>(*bench.peak_memory)) +
                                      " beyond inputs and outputs"
                                : std::string("not measured")) +
             "\n";
    return lines;
}

std::string verdict_lines(const Report& report) {
    std::string lines;
    if (report.verdict) {
        const Verdict& verdict = *report.verdict;
        for (const NamedError& one : report.rung->errors(verdict)) {
            lines += format("%-9s error %.3g, allowed %.3g\n", one.name, one.error, one.bound) +
                     one.remark;
        }
        if (verdict.rows < report.rows) {
            lines += format("          of %lld rows; the other %lld were not compared\n",
                            static_cast<long long>(verdict.rows),
                            static_cast<long long>(report.rows - verdict.rows));
        }
    }
    if (report.ok()) {
        return lines + (report.verdict ? "passed\n" : "not checked\n");
    }
    if (report.verdict && !report.verdict->ok) {
        lines += report.verdict->message + "\n";
        if (report.rung->overflows) {
            lines += "(this rung leaves the row maximum out on purpose, so that exp overflows "
                     "beyond scores of 88)\n";
        }
    }
    if (!report.damage.empty()) {
        lines += report.damage + "\n";
    }
    return lines + "FAILED\n";
}

} // namespace

std::string format_text(const Report& report) {
    const Problem& p = report.problem;
    const Backend& backend = report.rung->backend();
    return report.rung->name + "\n" +
           format("problem   B=%lld H=%lld H_kv=%lld N_q=%lld N_kv=%lld d=%s, %s, scale %.6g, %s, ",
                  static_cast<long long>(p.batch), static_cast<long long>(p.heads),
                  static_cast<long long>(p.kv_heads), static_cast<long long>(p.q_len),
                  static_cast<long long>(p.kv_len), head_dims_of(p).c_str(), mask_of(p).c_str(),
                  static_cast<double>(p.scale), dtype_name(report.dtype)) +
           (report.input ? *report.input : "random, seed " + std::to_string(report.seed)) + "\n" +
           "backend   " + backend.name() + ": " + backend.description() + "\n" + report.kind_lines +
           time_lines(report) + report.of_backend + verdict_lines(report);
}

} // namespace flash
