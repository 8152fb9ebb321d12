// What the descriptions of rungs, one for each kind, have in common. Every main.cpp includes it, so
// it includes little.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/attention.hpp"
#include "common/rung_function.hpp"
#include "common/types.hpp"

namespace flash {

class Backend;
class Rung;
struct ForwardResult;
struct Inputs;
struct Outputs;
struct Progress;
struct Verdict;

/// How an output is judged. With `rows_of_head` above 0 about that many rows of each head are
/// compared, else all of them; of a backward rung whole heads, with about as many rows in all.
using Check = Verdict (*)(const Problem&, const Inputs&, const Outputs&, const Progress&,
                          int64_t rows_of_head);

/// O, rounded to the inputs' type, and LSE, for a backward rung whose input holds none.
using ForwardReference = ForwardResult (*)(const Problem&, const Inputs&, const Progress&);

Backend& host_backend();

/// The program of one rung: reads the command line, runs the rung, checks and reports (see --help).
/// Returns the exit code: 0 passed, 1 wrong result, 2 bad input or no usable device.
/// A conformance test links another definition of this very function, so that a rung is registered
/// once.
int rung_main(Rung& rung, int argc, char** argv);

} // namespace flash
