// CUDA's vocabulary for g++ and clang++: what a kernel file sees instead of cuda_runtime.h when
// there is no nvcc.
// Every function here has the meaning that the CUDA C++ Programming Guide gives it.
#pragma once

#include "common/simt/machine/dim3.hpp"
#include "common/simt/vocabulary/atomics.hpp"
#include "common/simt/vocabulary/collectives.hpp"
#include "common/simt/vocabulary/cuda_runtime.hpp"
#include "common/simt/vocabulary/intrinsics.hpp"
#include "common/simt/vocabulary/keywords.hpp"
#include "common/simt/vocabulary/launch.hpp"
#include "common/simt/vocabulary/vector_types.hpp"
