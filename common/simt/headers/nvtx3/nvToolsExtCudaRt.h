// NVTX's header of this name, for the SIMT backend.
#pragma once

#include "common/simt/headers/nvToolsExt.h"
