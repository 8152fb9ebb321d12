// Work that goes on beside the threads: a copy, or a product of the tensor cores.
#pragma once

#include <cstdint>

#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

struct AsyncWork {
    uint32_t number;       // of the block's works, in the order in which they began
    unsigned thread;       // that began it; of a warpgroup, the first
    const char* operation; // "tma_load"
    SourceLocation location;
};

} // namespace flash::simt
