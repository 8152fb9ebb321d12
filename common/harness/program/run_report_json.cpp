#pragma GCC optimize("O1") // as in command_line.cpp

#include <nlohmann/json.hpp>

#include "common/harness/files/text.hpp"
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

Json verdict_json(const Rung& rung, const Verdict& verdict) {
    Json json = {{"ok", verdict.ok}};
    for (const NamedError& one : rung.errors(verdict)) {
        const std::string name = in_lower_case(one.name);
        json[name + "_error"] = one.error;
        json[name + "_bound"] = one.bound;
    }
    json["rows"] = verdict.rows;
    json["message"] = verdict.message;
    return json;
}

} // namespace

std::string format_json(const Report& report) {
    const Problem& p = report.problem;
    const Backend& backend = report.rung->backend();
    Json json = {
        {"rung", report.rung->name},
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
          {"head_dim_v", p.v_dim()},
          {"causal", p.causal},
          {"window", p.window > 0 ? Json(p.window) : Json(nullptr)},
          {"sink", p.sink},
          {"scale", p.scale}}},
        // of single kinds, but in every report, so that readers need not know the kind
        {"ranks", 1},
        {"processes", 1},
        {"portions", 1},
        {"page", nullptr},
        {"lengths", nullptr},
        {"kv_lengths", nullptr},
        {"dtype", dtype_name(report.dtype)},
        {"input", report.input ? Json(*report.input) : Json(nullptr)},
        {"seed", report.input ? Json(nullptr) : Json(report.seed)},
        {"seconds", report.seconds}, // the median with --bench
        {"flops", report.flops},
        {"gflops_per_s", report.flops / report.seconds / 1e9},
        {"benchmark", report.benchmark ? benchmark_json(*report.benchmark) : Json(nullptr)},
        {"check", report.verdict ? verdict_json(*report.rung, *report.verdict) : Json(nullptr)},
        {"damage", report.damage}, // memory that was written but is no output; empty: none
        {"compiler", __VERSION__}};
    for (const auto& [name, value] : report.kind_fields) {
        json[name] = Json::parse(value);
    }
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace flash
