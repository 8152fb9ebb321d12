// Twin of common/cuda/wgmma.hpp.
#pragma once

#include "common/simt/machine/wgmma.hpp"

namespace flash {

using simt::wgmma_commit;
using simt::wgmma_descriptor;
using simt::wgmma_fence;
template <int InFlight, int n> inline void wgmma_wait(float (&)[n][4]) {
    simt::wait_wgmma(InFlight);
}

template <class T, int N, bool transpose_B = false, bool transpose_A = false>
inline void wgmma_m64k16(float (&C)[N / 8][4], uint64_t A, uint64_t B, bool accumulate = true,
                         simt::Site site = simt::Site::here()) {
    static_assert(dtype_of<T> != DType::fp32 && N % 8 == 0 && N >= 8 && N <= 256);
    simt::start_wgmma({dtype_of<T>, N, transpose_A, transpose_B, accumulate, nullptr, A, B, C[0]},
                      site);
}

template <class T, int N, bool transpose_B = false>
inline void wgmma_m64k16(float (&C)[N / 8][4], const uint32_t (&A)[4], uint64_t B,
                         bool accumulate = true, simt::Site site = simt::Site::here()) {
    static_assert(dtype_of<T> != DType::fp32 && N % 8 == 0 && N >= 8 && N <= 256);
    simt::start_wgmma({dtype_of<T>, N, false, transpose_B, accumulate, A, 0, B, C[0]}, site);
}

template <int k16> inline void copy_A(uint32_t (&copy)[k16][4], const uint32_t (&A)[k16][4]) {
    for (int k = 0; k < k16; ++k) {
        for (int c = 0; c < 4; ++c) {
            copy[k][c] = A[k][c];
        }
    }
}

} // namespace flash
