// CUDA's header of this name, for the SIMT backend.
#pragma once

#include "common/simt/instructions/wmma.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
