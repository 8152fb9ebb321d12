// How an operation of the current thread that cannot be is refused.
#pragma once

#include <string>

#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/site.hpp"

namespace flash::simt {

/// Stops the block: the current thread "calls <operation>" there.
[[noreturn]] void refuse(FaultKind kind, const std::string& summary, const char* operation, Site site,
                         const char* hint = "");

} // namespace flash::simt
