// Twin of common/cuda/ptx/reduction.hpp, as on compute capability 9.0.
#pragma once

#include "common/simt/instructions/atomics.hpp"
#include "common/simt/language/keywords.hpp"

namespace flash {

inline void add_to_sum(float* sum, const float (&C)[4],
                       simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::atomic_add_4(sum + 4 * (threadIdx.x % 32), C, location);
}

} // namespace flash
