// The calls of the CUDA runtime that a small program's main makes: memory, copies and errors. Twins
// of cuda_runtime.h.
#pragma once

#include <cstddef>

#include "common/simt/language/errors.hpp"
#include "common/simt/machine/source_location.hpp"

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

/// The same for memory that both sides reach.
cudaError_t malloc_managed(void** pointer, const char* argument, size_t bytes);
cudaError_t malloc_host(void** pointer, const char* argument, size_t bytes);
template <class T>
cudaError_t malloc_managed(T** pointer, const char* argument, size_t bytes,
                           unsigned /*flags*/ = 0) {
    return malloc_managed(reinterpret_cast<void**>(pointer), argument, bytes);
}
template <class T>
cudaError_t malloc_host(T** pointer, const char* argument, size_t bytes, unsigned /*flags*/ = 0) {
    return malloc_host(reinterpret_cast<void**>(pointer), argument, bytes);
}

struct HostCall;
/// What every copy of the host does. Throws Fault when its pointers do not fit its direction, or
/// its size them.
void copy_memory(const HostCall& call, void* destination, const void* source, size_t bytes,
                 cudaMemcpyKind kind);

/// `count` elements of 1, 2 or 4 bytes of the device, set to a value.
void fill_memory(const HostCall& call, void* memory, unsigned value, unsigned element_bytes,
                 size_t count);

} // namespace flash::simt

// A macro, because only the preprocessor can quote the argument.
#define cudaMalloc(pointer, ...) ::flash::simt::cuda_malloc(pointer, #pointer, __VA_ARGS__)

#define cudaMallocManaged(pointer, ...)                                                            \
    ::flash::simt::malloc_managed(pointer, #pointer, __VA_ARGS__)
#define cudaMallocHost(pointer, ...) ::flash::simt::malloc_host(pointer, #pointer, __VA_ARGS__)
#define cudaHostAlloc(pointer, ...) ::flash::simt::malloc_host(pointer, #pointer, __VA_ARGS__)

enum : unsigned {
    cudaMemAttachGlobal = 1,
    cudaMemAttachHost = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaHostAllocWriteCombined = 4
};

// Each of these throws a Fault when its pointers are wrong. A last parameter `location` is not the
// caller's; those that programs name without calling them have none.
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaHostGetDevicePointer(
    void** on_device, void* pointer, unsigned flags,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
template <class T>
cudaError_t cudaHostGetDevicePointer(
    T** on_device, void* pointer, unsigned flags,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return cudaHostGetDevicePointer(reinterpret_cast<void**>(on_device), pointer, flags, location);
}
cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                       flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
cudaError_t cudaMemset(void* destination, int byte, size_t bytes,
                       flash::simt::SourceLocation location = flash::simt::SourceLocation::here());

// A launch returns when its kernel has ended; what counts is what a program may know of that.
cudaError_t cudaDeviceSynchronize();
