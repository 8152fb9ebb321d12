// CUDA's header of this name, for the SIMT backend. cooperative_groups.h has it all.
#pragma once

#include "cooperative_groups.h"
