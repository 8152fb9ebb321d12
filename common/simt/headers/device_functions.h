// CUDA's header of this name, for the SIMT backend. cuda_runtime.h has it all.
#pragma once

#include "cuda_runtime.h"
