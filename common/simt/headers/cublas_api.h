// CUDA's header of this name, for the SIMT backend.
#pragma once

#include "cublas_v2.h"
