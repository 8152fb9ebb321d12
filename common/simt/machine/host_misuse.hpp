// What the host must not do.
#pragma once

#include <string>

#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/location_id.hpp"

namespace flash::simt {

/// To be thrown; it is in the log of the run. "cudaFree at main.cu:12: d_x has been freed before"
Fault host_misuse(const std::string& call, const std::string& what, LocationId origin);

/// Legal but doubtful: a warning, and a fault with --strict, which is thrown.
void host_doubt(const std::string& call, const std::string& what, LocationId origin);

/// Of code that no exception may leave: the program ends as by one that nobody catches.
[[noreturn]] void end_program(const Fault& fault) noexcept;

/// The program is about to abort: says what was found so far. Null where nobody asks for it.
using Report = void();
extern constinit Report* report_before_abort;

} // namespace flash::simt
