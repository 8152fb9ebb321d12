// What the program's own file says about its code. Read by libdw (elfutils).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/machine/source_line.hpp"

struct Dwarf; // libdw's

namespace flash::simt {

struct Symbol {
    std::string name; // mangled
    uint64_t address; // in the file; a thread-local variable's offset in its segment
    uint64_t bytes;
    enum Kind { function, thread_local_variable, variable } kind;
};

/// The program's functions and variables; none when it is stripped.
std::vector<Symbol> own_symbols();

/// A line, and the function that it stands in.
struct Frame {
    std::string function; // "warp_sum<float>"
    SourceLine line;
};

/// The source line of a code address in the file, then those of the calls that were inlined there,
/// outermost last. Nothing without -g.
std::vector<Frame> frames_at(uint64_t address);

/// All that there is; null without -g.
Dwarf* own_debug_info();

} // namespace flash::simt
