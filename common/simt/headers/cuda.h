// CUDA's header of this name, for the SIMT backend: programs that include it mostly want the
// runtime. The driver's own calls are not there.
#pragma once

#include "cuda_runtime.h"

#define CUDA_VERSION 13000
using CUstream = cudaStream_t;
using CUevent = cudaEvent_t;
using CUdevice = int;
