// The file that holds a recording: docs/watch_format.md.
#pragma once

#include <map>
#include <string>

#include "common/simt/observers/recorder.hpp"

namespace flash::simt {

/// Writes a block's run, with what the counters counted of it and the fault it ended with, if any.
void write_trace(const std::string& path, Recording& recording, Block& block,
                 const std::map<LocationId, Counters>& counted, const Fault* fault);

/// Says that the fault is in a block that is not recorded.
void write_elsewhere(const std::string& path, const Fault& fault);

} // namespace flash::simt
