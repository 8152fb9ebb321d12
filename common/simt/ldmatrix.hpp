// Twin of the ldmatrix wrappers in common/cuda/ldmatrix.hpp.
#pragma once

#include <cstdint>

#include "common/simt/site.hpp"

namespace flash {
namespace simt {

/// `registers` of this lane receive its part of `count` 8 x 8 matrices; lane 8 m + i names row i of matrix m.
void load_matrices(uint32_t* registers, const void* row, int count, bool transposed, Site site);

} // namespace simt

inline void ldmatrix_x1(uint32_t (&r)[1], const void* row, simt::Site site = simt::Site::here()) {
    simt::load_matrices(r, row, 1, false, site);
}
inline void ldmatrix_x2(uint32_t (&r)[2], const void* row, simt::Site site = simt::Site::here()) {
    simt::load_matrices(r, row, 2, false, site);
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, simt::Site site = simt::Site::here()) {
    simt::load_matrices(r, row, 4, false, site);
}
inline void ldmatrix_x1_trans(uint32_t (&r)[1], const void* row, simt::Site site = simt::Site::here()) {
    simt::load_matrices(r, row, 1, true, site);
}
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row, simt::Site site = simt::Site::here()) {
    simt::load_matrices(r, row, 2, true, site);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, simt::Site site = simt::Site::here()) {
    simt::load_matrices(r, row, 4, true, site);
}

} // namespace flash
