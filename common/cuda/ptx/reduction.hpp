// Reductions: additions to global memory by many blocks at once, whose results no thread asks for.
// (PTX ISA, "red".)
//
// A sum is kept in the order of the fragments. The 16 rows x 8 columns of a C fragment are 512
// bytes in one piece, and a lane's four elements lie side by side, so that one instruction adds
// them (compute capability 9.0):
//
//      lane   0           1           2           3           4                 31
//             c0 c1 c2 c3 c0 c1 c2 c3 c0 c1 c2 c3 c0 c1 c2 c3 c0 c1 c2 c3  ...  c0 c1 c2 c3
//      row    0  0  8  8  0  0  8  8  0  0  8  8  0  0  8  8  1  1  9  9        7  7  15 15
//      column 0  1  0  1  2  3  2  3  4  5  4  5  6  7  6  7  0  1  0  1        6  7  6  7
//
// On older GPUs an instruction adds one float per lane. There c0 of all lanes lie side by side,
// then c1 of all lanes, and so on: element by element, because lanes that add side by side need a
// quarter of the sectors.
#pragma once

#include "common/cuda/cuda.hpp"

#ifdef __NVCC__

namespace flash {

/// Adds the warp's C fragment to the 128 floats at `sum`, which is a multiple of 16 bytes. No
/// addition is lost, whoever else adds there, but their order is not fixed. Every lane of the warp
/// calls it.
__device__ __forceinline__ void add_to_sum(float* sum, const float (&C)[4]) {
    const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sum + 4 * lane), "f"(C[0]),
                 "f"(C[1]), "f"(C[2]), "f"(C[3])
                 : "memory");
#else
    for (int c = 0; c < 4; ++c) {
        atomicAdd(sum + 32 * c + lane, C[c]);
    }
#endif
}

} // namespace flash

#else
#include "common/simt/instructions/reduction.hpp"
#endif

namespace flash {

/// Whether add_to_sum keeps a lane's four elements side by side, or goes element by element.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool sums_by_lane = false;
#else
inline constexpr bool sums_by_lane = true;
#endif

/// Rows g and g + 8 of the C fragment at `sum`, in the order of add_to_sum, read by one thread.
template <bool by_lane = sums_by_lane>
__device__ inline void rows_of_sum(float (&rows)[2][8], const float* sum, int g) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        if constexpr (by_lane) { // the four elements of lane 4g + e
            const float4 C = *reinterpret_cast<const float4*>(sum + 16 * g + 4 * e);
            rows[0][2 * e] = C.x;
            rows[0][2 * e + 1] = C.y;
            rows[1][2 * e] = C.z;
            rows[1][2 * e + 1] = C.w;
        } else { // element e of lanes 4g to 4g + 3
            const float4 C = *reinterpret_cast<const float4*>(sum + 32 * e + 4 * g);
            float* const row = rows[e / 2] + e % 2;
            row[0] = C.x;
            row[2] = C.y;
            row[4] = C.z;
            row[6] = C.w;
        }
    }
}

} // namespace flash
