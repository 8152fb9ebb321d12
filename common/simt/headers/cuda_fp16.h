// CUDA's header of this name, for the SIMT backend.
#pragma once

#include "common/simt/language/narrow.hpp"
#include "cuda_runtime.h"

using __half = flash::simt::Narrow<flash::Half>;
using __half2 = flash::simt::Pair<flash::Half>;
using __half_raw = flash::simt::Raw<flash::Half>;
using __half2_raw = flash::simt::RawPair<flash::Half>;
using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

FLASH_SIMT_NARROW_NAMES(flash::Half, half, half2)
