// Twin of common/cuda/ptx/ldmatrix.hpp.
#pragma once

#include <cstdint>

#include "common/simt/machine/source_location.hpp"

namespace flash {
namespace simt {

/// `registers` of this lane receive its part of four 8 x 8 matrices; lane 8 m + i names row i of
/// matrix m.
void load_matrices(uint32_t (&registers)[4], const void* row, bool transposed,
                   SourceLocation location);

} // namespace simt

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row,
                        simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::load_matrices(r, row, false, location);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row,
                              simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::load_matrices(r, row, true, location);
}

} // namespace flash
