// Twin of common/cuda/ptx/ldmatrix.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/simt/machine/source_location.hpp"

namespace flash {
namespace simt {

/// `registers` of this lane receive its part of four 8 x 8 matrices; lane 8 m + i names row i of
/// matrix m.
/// A register for each of 1, 2 or 4 tiles, whose rows the first 8, 16 or all lanes name.
void load_matrices(uint32_t* registers, size_t tiles, const void* row, bool transposed,
                   SourceLocation location);

} // namespace simt

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row,
                        simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::load_matrices(r, 4, row, false, location);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row,
                              simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::load_matrices(r, 4, row, true, location);
}

} // namespace flash
