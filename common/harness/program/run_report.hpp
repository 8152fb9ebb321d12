// What a run found out, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/harness/program/benchmark.hpp"
#include "common/harness/program/command_line.hpp"

namespace flash {

struct Report {
    Rung rung;
    Problem problem;
    DType dtype = DType::fp32;
    std::optional<std::string> input; // the file, or else
    uint64_t seed = 0;                // the seed of random input
    int ranks = 1;                    // of a ring,
    int processes = 1;                // and how many processes computed them
    int portions = 1;                 // in which its heads went round
    int page = 0;                     // keys in a page of a paged cache, or 0
    std::vector<int64_t> lengths;     // of its sequences
    double flops = 0;                 // of the problem, or of the sequences of a paged cache
    // of the first run, or of a second one when that is quick: the first one starts threads
    double seconds = 0;
    std::optional<Benchmark> benchmark;
    std::optional<Verdict> verdict; // nothing with --no-check
    std::string damage;             // DeviceRun::damage
    std::string of_backend;         // lines of Backend::end_first_run

    bool ok() const { return damage.empty() && (!verdict || verdict->ok); }
};

/// A few lines of text.
std::string format_text(const Report& report);

/// One JSON document; what was not measured or not asked for is null, and so is a number that is
/// not finite.
std::string format_json(const Report& report);

} // namespace flash
