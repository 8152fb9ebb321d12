// For the chapters' commands. Written by CMake (common/cmake/ByHand.cmake).
// clang-format off
#include "common/cuda/launch/device_buffer.cu"
#include "common/cuda/launch/launch.cu"
#include "common/cuda/launch/tensor_map.cu"
#include "common/harness/backends/cuda/cuda_backend.cu"
