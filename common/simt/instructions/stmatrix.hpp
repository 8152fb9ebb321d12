// Twin of common/cuda/ptx/stmatrix.hpp.
#pragma once

#include <cstdint>

#include "common/simt/language/vector_types.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash {
namespace simt {

/// The warp's lanes exchange what they hold of four 8 x 8 tiles: lane 8 m + i receives column i of
/// tile m.
void column_of_tiles(uint4& column, const uint32_t (&r)[4], SourceLocation location);

} // namespace simt

/// A column becomes a row in memory, stored by the lane that names it: 16 bytes at once, as the
/// hardware does it.
[[gnu::always_inline]] inline void
stmatrix_x4_trans(void* row, const uint32_t (&r)[4],
                  simt::SourceLocation location = simt::SourceLocation::here()) {
    uint4 column;
    simt::column_of_tiles(column, r, location);
    *static_cast<uint4*>(row) = column;
}

} // namespace flash
