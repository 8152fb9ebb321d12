// What kernels on a GPU stand on, for the chapters' commands (common/cmake/ByHand.cmake writes this list).
// clang-format off
#include "common/cuda/launch/device_buffer.cu"
#include "common/cuda/launch/launch.cu"
#include "common/cuda/launch/tensor_map.cu"
#include "common/harness/backends/cuda/cuda_backend.cu"
