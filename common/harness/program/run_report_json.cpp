#include <nlohmann/json.hpp>

#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

using Json = nlohmann::ordered_json;

Json benchmark_json(const Benchmark& bench) {
    return {{"warm_ups", bench.warm_ups},
            {"repetitions", bench.seconds.size()},
            {"cut_short", bench.cut_short()},
            {"median_s", bench.median()},
            {"min_s", bench.minimum()},
            {"max_s", bench.maximum()},
            {"spread", (bench.maximum() - bench.minimum()) / bench.median()},
            {"seconds", bench.seconds},
            {"peak_memory_bytes", bench.peak_memory ? Json(*bench.peak_memory) : Json(nullptr)}};
}

Json verdict_json(const Verdict& verdict, bool backward) {
    if (backward) {
        return {{"ok", verdict.ok},
                {"dq_error", verdict.d_q.error},
                {"dq_bound", verdict.d_q.bound},
                {"dk_error", verdict.d_k.error},
                {"dk_bound", verdict.d_k.bound},
                {"dv_error", verdict.d_v.error},
                {"dv_bound", verdict.d_v.bound},
                {"rows", verdict.rows},
                {"message", verdict.message}};
    }
    return {{"ok", verdict.ok},
            {"o_error", verdict.o_error},
            {"o_bound", verdict.o_bound},
            {"lse_error", verdict.lse_error},
            {"lse_bound", verdict.lse_bound},
            {"rows", verdict.rows},
            {"message", verdict.message}};
}

} // namespace

std::string format_json(const Report& report) {
    const Problem& p = report.problem;
    const Backend& backend = report.rung.backend();
    const Json json = {
        {"rung", report.rung.name},
        {"ok", report.ok()},
        {"backend", backend.name()},
        {"description", backend.description()},
        {"problem",
         {{"batch", p.batch},
          {"heads", p.heads},
          {"kv_heads", p.kv_heads},
          {"q_len", p.q_len},
          {"kv_len", p.kv_len},
          {"head_dim", p.head_dim},
          {"causal", p.causal},
          {"scale", p.scale}}},
        {"ranks", report.ranks},
        {"processes", report.processes},
        {"portions", report.portions},
        {"page", report.page > 0 ? Json(report.page) : Json(nullptr)},
        {"lengths", report.page > 0 ? Json(report.lengths) : Json(nullptr)},
        {"dtype", dtype_name(report.dtype)},
        {"input", report.input ? Json(*report.input) : Json(nullptr)},
        {"seed", report.input ? Json(nullptr) : Json(report.seed)},
        {"seconds", report.seconds}, // the median with --bench
        {"flops", report.flops},
        {"gflops_per_s", report.flops / report.seconds / 1e9},
        {"benchmark", report.benchmark ? benchmark_json(*report.benchmark) : Json(nullptr)},
        {"check",
         report.verdict ? verdict_json(*report.verdict, report.rung.is_backward()) : Json(nullptr)},
        {"damage", report.damage}, // memory that was written but is no output; empty: none
        {"compiler", __VERSION__}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace flash
