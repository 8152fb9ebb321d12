// CUDA's header of this name, for the SIMT backend.
#pragma once

#define _COOPERATIVE_GROUPS_H_

#include "common/simt/instructions/cooperative_groups.hpp"
#include "cuda_runtime.h"
