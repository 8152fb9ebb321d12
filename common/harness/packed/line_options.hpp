// --lengths and --kv-lengths: the command line of a rung whose sequences are on a line.
#pragma once

#include <optional>
#include <string>

#include "common/harness/packed/packed_line.hpp"
#include "common/harness/program/command_line.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {

class LineOptions {
  public:
    void add(CommandLine& line);

    /// The sequences that the options describe, or a file and they. Throws Error where they
    /// disagree.
    PackedShape shape(const Rung& rung, const Options& options) const;

  private:
    std::optional<std::string> lengths_given_, kv_lengths_given_; // "1000,0,37"
};

/// What the report says of a line.
void plan_line(Report& report, const PackedShape& shape);

} // namespace flash
