// A line of a program's source.
#pragma once

#include <compare>
#include <string>

namespace flash::simt {

struct SourceLine {
    std::string file; // empty: not known, the kernel was compiled without -g
    int line = 0;
    friend auto operator<=>(const SourceLine&, const SourceLine&) = default;
};

} // namespace flash::simt
