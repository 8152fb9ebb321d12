// CUDA's header of this name, for the SIMT backend.
#pragma once

#include "common/simt/language/narrow.hpp"
#include "cuda_runtime.h"

using __nv_bfloat16 = flash::simt::Narrow<flash::Bfloat16>;
using __nv_bfloat162 = flash::simt::Pair<flash::Bfloat16>;
using __nv_bfloat16_raw = flash::simt::Raw<flash::Bfloat16>;
using __nv_bfloat162_raw = flash::simt::RawPair<flash::Bfloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

FLASH_SIMT_NARROW_NAMES(flash::Bfloat16, bfloat16, bfloat162)
