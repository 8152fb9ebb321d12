// On which stream of the GPU the work of this host thread stands in line. nvcc only.
#pragma once

#include <cuda_runtime.h>

namespace flash {

/// Where this host thread's kernels start and its device memory comes from. CUDA's default stream,
/// until a caller with streams of his own (PyTorch) names another.
inline thread_local cudaStream_t current_stream = nullptr;

} // namespace flash
