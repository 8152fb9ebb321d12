// Twin of common/cuda/reduction.hpp, as on compute capability 9.0.
#pragma once

#include "common/simt/vocabulary/atomics.hpp"
#include "common/simt/vocabulary/cuda_on_cpu.hpp"

namespace flash {

inline void add_to_sum(float* sum, const float (&C)[4], simt::Site site = simt::Site::here()) {
    simt::atomic_add_4(sum + 4 * (threadIdx.x % 32), C, site);
}

} // namespace flash
