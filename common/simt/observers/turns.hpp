// Lets the warps of a recording take turns: an order of their instructions that keeps every
// barrier, phase and copy, in which no warp runs far ahead for no reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/simt/observers/recorder.hpp"

namespace flash::simt {

/// A step of the order: an instruction of a warp, or of the copy engine, which lands work.
struct Turn {
    unsigned warp;
    size_t index;          // among the warp's instructions; of `engine`, the work
    int64_t ended_by = -1; // where a wait stands: the step that ended it
};

/// What goes on beside the warps, from its first step to the one that ends it.
struct RecordedWork {
    std::string kind; // "cp.async", "tma load", "store", "wgmma"
    unsigned warp;
    std::vector<size_t> steps; // that belong to it
    int64_t end = -1;          // -1: nothing ends it
    const void* barrier = nullptr;
};

struct Turns {
    std::vector<Turn> steps;
    std::vector<RecordedWork> works;
};

/// An instruction of a warp; of a fault, it comes last.
struct Place {
    unsigned warp;
    size_t index;
};

Turns take_turns(const Recording& recording, std::optional<Place> last);

} // namespace flash::simt
