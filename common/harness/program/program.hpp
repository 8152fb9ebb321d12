// The parts of a rung's program, from the command line to the exit code.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/harness/program/command_line.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {

/// What was asked for, and what is known of it: the beginning of a report.
struct Plan {
    Options options;
    Report report;
};

/// Everything that can be refused is refused before anything takes time, but for memory. Nothing
/// when --help was asked for.
std::optional<Plan> make_plan(Rung& rung, int argc, const char* const* argv);

/// Makes the input, runs, checks, writes, times. `program` is what files of the backend are called.
void carry_out(Rung& rung, Plan& plan, const std::string& program);

/// Prints the report and returns the exit code.
int print(const Plan& plan);

/// What went wrong, for the user, and the exit code for it; 0: nothing.
struct Failure {
    int code = 0;
    std::string why;
};

Failure failure_of(const std::function<void()>& work);

/// Prints it and returns its code.
int say(const Rung& rung, const Failure& failure);

} // namespace flash
