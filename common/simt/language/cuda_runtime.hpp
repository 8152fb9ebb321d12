// The calls of the CUDA runtime that a small program's main makes: memory, copies and errors. Twins
// of cuda_runtime.h.
#pragma once

#include <cstddef>

#include "common/cuda/launch/device_buffer.hpp"
#include "common/simt/language/errors.hpp"

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault // the addresses say it
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

// A launch returns when its kernel has ended.
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
