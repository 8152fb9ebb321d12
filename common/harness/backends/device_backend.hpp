// The backend of every rung that is written in CUDA. The build decides which it is:
// cuda/cuda_backend.cu runs kernels on a GPU, simt/simt_backend.cpp executes them on the CPU.
#pragma once

namespace flash {

class Backend;

Backend& device_backend();

} // namespace flash
