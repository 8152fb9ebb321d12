// The backend of every rung that is written in CUDA. The build decides what it is: device_backend.cu beside this file
// runs kernels on a GPU, common/simt/device_backend.cpp executes them on the CPU.
#pragma once

#include "common/harness/backend.hpp"

namespace flash {

Backend& device_backend();

} // namespace flash
