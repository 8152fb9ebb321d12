#pragma once
#include "common/simt/cuda_on_cpu.hpp"
