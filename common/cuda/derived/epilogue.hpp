// The epilogue that `mma_sync` derives, for the rungs after it: O is divided by l and stored, and
// so is LSE.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace flash {

/// Stores two rows of O and of LSE, if they are less than `rows`: `row`, which is the lane's row g
/// of an m16 tile, and `row` + 8. m and l are those of the two rows, m as a natural logarithm. A
/// row that sees no key has l = 0 and gets O = 0.
template <class T, int fragments>
__device__ inline void store_O_and_LSE(T* O, float* LSE, const float (&O_reg)[fragments][4],
                                       const float (&m)[2], const float (&l)[2], int row,
                                       int rows) {
    const int t = threadIdx.x % 4; // the lane's columns in a C fragment: 2t and 2t + 1
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int i = row + 8 * r;
        if (i < rows) {
            const float normalise = l[r] == 0 ? 0.0f : 1 / l[r];
#pragma unroll
            for (int n = 0; n < fragments; ++n) {
                *reinterpret_cast<uint32_t*>(O + (i * fragments + n) * 8 + 2 * t) =
                    pack_O<T>(O_reg[n][2 * r] * normalise, O_reg[n][2 * r + 1] * normalise);
            }
            if (t == 0) {
                LSE[i] = m[r] + logf(l[r]);
            }
        }
    }
}

} // namespace flash
