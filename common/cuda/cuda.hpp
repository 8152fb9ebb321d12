// CUDA for kernels: all that a kernel file includes.
//
// Kernels are written in ordinary CUDA. Two spellings differ, because the language's own need nvcc:
//
// kernel<<<grid, block, bytes>>>(arguments...)  flash::launch(kernel, grid, block, bytes, args...)
// extern __shared__ float smem[];               flash::dynamic_shared<float>()
//
// So the same file compiles with nvcc for a GPU and with g++ for the SIMT backend, which executes
// it on the CPU.
#pragma once

#include "common/cuda/launch/sizes.hpp"
#include "common/cuda/launch/workspace.hpp"

#ifdef __NVCC__
#include <cuda_runtime.h>

#include "common/cuda/launch/launch.hpp"
#else
#include "common/simt/cuda_on_cpu.hpp"
#endif
