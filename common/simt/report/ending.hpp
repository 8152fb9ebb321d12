// What a watched run comes to: a line for people, a JSON document for programs, an exit code.
#pragma once

#include <string>

namespace flash::simt {

/// How a watched program ends where its own exit code would not say it. No shell, no test runner
/// and hardly a program uses these numbers for something else.
enum ExitCode {
    exit_fault = 86,        // of a kernel, or of a warning with --strict
    exit_timeout = 87,      // a launch made no progress, or the program took too long
    exit_unsupported = 88,  // the program needs something that this backend has not
    exit_unchecked = 89,    // in the place of 0: no launch was watched, so nothing is known
    exit_interrupted = 130, // Ctrl-C, as shells have it
    exit_terminated = 143,  // SIGTERM
};

enum class Ending { clean, warning, fault, timeout, unsupported, interrupted, unchecked };

/// Of all that run_log() has.
Ending ending();

/// "no fault found: 3 kernels, 5 launches (4 watched)", and more lines where something is to be
/// said of that.
std::string ending_line();

/// The exit code of the run, when the program's own is `code`.
int exit_code(int code);

/// The verdict as a JSON document. docs/simt_reference.md has its keys; `version` is 1 until one
/// of them changes its meaning or goes.
std::string ending_json(int program_exit_code);

} // namespace flash::simt
