// CUDA for g++ and clang++: what a kernel file sees instead of cuda_runtime.h when
// there is no nvcc.
// Every function here has the meaning that the CUDA C++ Programming Guide gives it.
#pragma once

#include "common/simt/instructions/atomics.hpp"
#include "common/simt/instructions/collectives.hpp"
#include "common/simt/instructions/redux.hpp"
#include "common/simt/language/cuda_runtime.hpp"
#include "common/simt/language/device_symbols.hpp"
#include "common/simt/language/intrinsics.hpp"
#include "common/simt/language/keywords.hpp"
#include "common/simt/language/launch.hpp"
#include "common/simt/language/memory_functions.hpp"
#include "common/simt/language/trap.hpp"
#include "common/simt/language/vector_types.hpp"
#include "common/simt/machine/dim3.hpp"
