// Where memory should be and who will use it. Here all of it is in one place, so none of these does
// anything; and memory in the order of a stream is memory.
#pragma once

#include <cstddef>

#include "common/simt/language/cuda_runtime.hpp"
#include "common/simt/language/streams.hpp"

enum cudaMemoryAdvise {
    cudaMemAdviseSetReadMostly = 1,
    cudaMemAdviseUnsetReadMostly,
    cudaMemAdviseSetPreferredLocation,
    cudaMemAdviseUnsetPreferredLocation,
    cudaMemAdviseSetAccessedBy,
    cudaMemAdviseUnsetAccessedBy
};
enum cudaMemLocationType {
    cudaMemLocationTypeInvalid,
    cudaMemLocationTypeDevice,
    cudaMemLocationTypeHost
};
struct cudaMemLocation {
    cudaMemLocationType type;
    int id;
};
inline constexpr int cudaCpuDeviceId = -1;
inline constexpr unsigned cudaMemAttachSingle = 4;

// A place is the number of a device, or since CUDA 13 a cudaMemLocation.
inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
    return cudaSuccess;
}
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = nullptr) {
    return cudaSuccess;
}
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned,
                                        cudaStream_t = nullptr) {
    return cudaSuccess;
}
template <class T>
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, T*, size_t = 0, unsigned = 4) {
    return cudaSuccess;
}

namespace flash::simt {

template <class T>
cudaError_t malloc_async(T** pointer, const char* argument, size_t bytes, cudaStream_t) {
    return cuda_malloc(pointer, argument, bytes);
}

} // namespace flash::simt

#define cudaMallocAsync(pointer, ...) ::flash::simt::malloc_async(pointer, #pointer, __VA_ARGS__)
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
