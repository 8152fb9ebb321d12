#include "common/simt/language/cuda_runtime.hpp"

#include <cstring>
#include <string>

#include "common/attention.hpp"

namespace flash::simt {

cudaError_t cuda_malloc(void** pointer, const char* argument, size_t bytes) {
    const char* const name = std::strrchr(argument, '&'); // "&a" and "(void**)&a" both name a
    try {
        *pointer = allocate_device_memory(bytes, name != nullptr ? name + 1 : argument);
        return cudaSuccess;
    } catch (const Error&) {
        return noted(cudaErrorMemoryAllocation);
    }
}

} // namespace flash::simt

cudaError_t cudaFree(void* pointer) {
    if (pointer != nullptr) {
        flash::free_device_memory(pointer);
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes,
                       cudaMemcpyKind /*kind*/) {
    std::memcpy(destination, source, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void* destination, int byte, size_t bytes) {
    std::memset(destination, byte, bytes);
    return cudaSuccess;
}
