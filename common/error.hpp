// What is thrown here: by the harness, by rungs, and by the SIMT backend.
#pragma once

#include <stdexcept>
#include <string>

namespace flash {

/// Bad input, or a machine that cannot do what was asked. `what()` is one to three lines for the
/// user: what was wrong and what would work. Every program turns it into exit code 2.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A kernel did something wrong while it ran, and that was noticed. Every program turns it into
/// exit code 1.
struct KernelFault : Error {
    using Error::Error;
    std::string name = {}; // of its kind, for programs that read reports: "race"
};

} // namespace flash
