// Timing a rung: warm-up, cold caches, the median of many.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/harness/backends/backend.hpp"
#include "common/harness/program/any_run.hpp"
#include "common/harness/program/verdict.hpp"

namespace flash {

struct Benchmark {
    int warm_ups = 0;
    std::vector<double> seconds; // one a repetition, in the order they were measured
    // bytes beyond inputs and outputs; nothing where it cannot be measured
    std::optional<size_t> peak_memory;

    double median() const;
    double minimum() const;
    double maximum() const;

    /// How many repetitions a result should rest on; fewer are made only when they would take
    /// minutes.
    static constexpr int fewest = 20;
    bool cut_short() const { return seconds.size() < fewest; }
};

/// Times `run` with the caches flushed before each repetition, `repetitions` times, or as often as
/// a good median needs. The backend must be the one that `run` uses.
Benchmark benchmark(AnyRun& run, Backend& backend, const Progress& progress,
                    std::optional<int> repetitions = {});

} // namespace flash
