#include "common/harness/program/benchmark.hpp"

#include <algorithm>
#include <chrono>

namespace flash {
namespace {

constexpr double warm_up_seconds = 0.2; // lets clocks rise and threads start
constexpr double enough_seconds = 1;    // short runs are repeated until this much has been timed,
constexpr int most = 100;               // but not more often than this,
constexpr double patience = 3;          // nor longer than this, flushing the caches included
constexpr double too_long = 60;         // after so much, fewer repetitions than wanted must do,
constexpr int fewest_of_long_runs = 3;  // but never fewer than this

} // namespace

double Benchmark::median() const {
    std::vector<double> sorted = seconds;
    std::ranges::sort(sorted);
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double Benchmark::minimum() const { return std::ranges::min(seconds); }
double Benchmark::maximum() const { return std::ranges::max(seconds); }

Benchmark benchmark(AnyRun& run, Backend& backend, const Progress& progress,
                    std::optional<int> repetitions) {
    Benchmark result;
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    do {
        run.run();
        ++result.warm_ups;
    } while (run.agree(passed() < warm_up_seconds));

    if (const auto allocated = backend.peak_memory_of([&] { run.run(); })) {
        result.peak_memory = *allocated + run.workspace_bytes();
    }
    ++result.warm_ups;

    double timed = 0;
    const auto finished = [&] {
        const auto count = static_cast<int>(result.seconds.size());
        return repetitions ? count >= *repetitions
               : count >= Benchmark::fewest
                   ? timed >= enough_seconds || count >= most || passed() >= patience
                   : timed >= too_long && count >= fewest_of_long_runs;
    };
    while (run.agree(!finished())) {
        result.seconds.push_back(run.time());
        timed += result.seconds.back();
        progress(static_cast<double>(result.seconds.size()) /
                 repetitions.value_or(Benchmark::fewest));
    }
    return result;
}

} // namespace flash
