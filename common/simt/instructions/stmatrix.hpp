// Twin of common/cuda/ptx/stmatrix.hpp.
#pragma once

#include <cstdint>

#include "common/simt/language/vector_types.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash {
namespace simt {

/// The warp's lanes exchange what they hold of four 8 x 8 tiles: lane 8 m + i receives row i of
/// tile m, or column i if `transposed`.
void line_of_tiles(uint4& line, const uint32_t (&r)[4], bool transposed, SourceLocation location);

} // namespace simt

/// What becomes a row in memory is stored by the lane that names it: 16 bytes at once, as the
/// hardware does it.
[[gnu::always_inline]] inline void
stmatrix_x4(void* row, const uint32_t (&r)[4],
            simt::SourceLocation location = simt::SourceLocation::here()) {
    uint4 line;
    simt::line_of_tiles(line, r, false, location);
    *static_cast<uint4*>(row) = line;
}
[[gnu::always_inline]] inline void
stmatrix_x4_trans(void* row, const uint32_t (&r)[4],
                  simt::SourceLocation location = simt::SourceLocation::here()) {
    uint4 line;
    simt::line_of_tiles(line, r, true, location);
    *static_cast<uint4*>(row) = line;
}

} // namespace flash
