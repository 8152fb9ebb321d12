// The calls of the CUDA runtime that a small program's main makes: memory, copies and errors. Twins
// of cuda_runtime.h.
#pragma once

#include <cstddef>

#include "common/cuda/launch/device_buffer.hpp"

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};

namespace flash::simt {

/// cudaMalloc, with the source text of its first argument: messages call the buffer so.
cudaError_t cuda_malloc(void** pointer, const char* argument, size_t bytes);
template <class T> cudaError_t cuda_malloc(T** pointer, const char* argument, size_t bytes) {
    return cuda_malloc(reinterpret_cast<void**>(pointer), argument, bytes);
}

} // namespace flash::simt

// A macro, because only the preprocessor can quote the argument.
#define cudaMalloc(pointer, ...) ::flash::simt::cuda_malloc(pointer, #pointer, __VA_ARGS__)

cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* destination, int byte, size_t bytes);

// A launch throws what is wrong with it, and returns when its kernel has ended.
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "out of memory";
}
