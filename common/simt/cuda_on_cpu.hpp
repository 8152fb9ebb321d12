// CUDA's vocabulary for g++ and clang++: what a kernel file sees instead of cuda_runtime.h when there is no nvcc.
// Every function here has the meaning that the CUDA C++ Programming Guide gives it.
#pragma once

#include "common/simt/atomics.hpp"
#include "common/simt/collectives.hpp"
#include "common/simt/dim3.hpp"
#include "common/simt/intrinsics.hpp"
#include "common/simt/keywords.hpp"
#include "common/simt/launch.hpp"
#include "common/simt/vector_types.hpp"
