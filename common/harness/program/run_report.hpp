// What a run found out, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/program/benchmark.hpp"
#include "common/harness/program/command_line.hpp"

namespace flash {

struct Report {
    const Rung* rung = nullptr;
    Problem problem;
    DType dtype = DType::fp32;
    std::optional<std::string> input; // the file, or else
    uint64_t seed = 0;                // the seed of random input
    double flops = 0;                 // of the problem
    int64_t rows = 0;                 // of O, over all heads
    // of the first run, or of a second one when that is quick: the first one starts threads
    double seconds = 0;
    std::optional<Benchmark> benchmark;
    std::optional<Verdict> verdict; // nothing with --no-check
    std::string damage;             // DeviceRun::damage
    std::string of_backend;         // lines of Backend::end_first_run

    // What the rung's kind adds: lines of text, and fields of JSON, {name, JSON}.
    std::string kind_lines;
    std::vector<std::pair<std::string, std::string>> kind_fields;

    bool ok() const { return damage.empty() && (!verdict || verdict->ok); }
};

/// A few lines of text.
std::string format_text(const Report& report);

/// One JSON document; what was not measured or not asked for is null, and so is a number that is
/// not finite.
std::string format_json(const Report& report);

} // namespace flash
