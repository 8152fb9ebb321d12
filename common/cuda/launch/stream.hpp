// The stream of the GPU on which this host thread's work queues up. nvcc only.
#pragma once

#include <cuda_runtime.h>

namespace flash {

/// Where this host thread's kernels start and its device memory comes from. It is CUDA's default
/// stream until a caller with streams of its own (PyTorch) names another.
inline thread_local cudaStream_t current_stream = nullptr;

} // namespace flash
