// NVTX's header of this name, for the SIMT backend.
#pragma once

#include "nvToolsExt.h"
