// CUDA's header of this name, for the SIMT backend: without the class of nvcuda::experimental.
#pragma once

#include "cuda_pipeline_primitives.h"
