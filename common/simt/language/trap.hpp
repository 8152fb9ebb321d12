// __trap(): a kernel gives up.
#pragma once

#include "common/simt/machine/source_location.hpp"

[[noreturn]] void
__trap(flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
