// CUDA's header of this name, for the SIMT backend.
#pragma once

#include "cooperative_groups.h"

#include "common/simt/instructions/cooperative_reduce.hpp"
