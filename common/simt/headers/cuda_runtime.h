// CUDA's header of this name, for the SIMT backend: all of the language and of the runtime's calls.
#pragma once

// by which other headers tell that it is there
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __VECTOR_TYPES_H__
#define CUDART_VERSION 13000

// C++20 has a lerp in the global namespace, C++17 has none, and many a file has its own
#define lerp lerp_of_cxx20
#include <math.h>
#undef lerp

// nvcc brings these along, and files count on it
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "common/simt/cuda_on_cpu.hpp"
#include "common/simt/instructions/cooperative_launch.hpp"
#include "common/simt/instructions/plain_atomics.hpp"
#include "common/simt/instructions/warp.hpp"
#include "common/simt/language/bits.hpp"
#include "common/simt/language/copies.hpp"
#include "common/simt/language/device.hpp"
#include "common/simt/language/graphs.hpp"
#include "common/simt/language/math.hpp"
#include "common/simt/language/memory_hints.hpp"
#include "common/simt/language/occupancy.hpp"
#include "common/simt/language/streams.hpp"

// libstdc++ has another use for this word, in <memory>
#define __noinline__ __attribute__((noinline))
