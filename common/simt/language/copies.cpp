#include "common/simt/language/copies.hpp"

using flash::simt::noted;

cudaError_t cudaMemcpy2D(void* destination, size_t destination_pitch, const void* source,
                         size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                         flash::simt::SourceLocation location) {
    if (width > destination_pitch || width > source_pitch) {
        return noted(cudaErrorInvalidPitchValue);
    }
    if (width == destination_pitch && width == source_pitch) {
        return cudaMemcpy(destination, source, width * height, kind, location);
    }
    for (size_t row = 0; row < height; ++row) {
        const cudaError_t error = cudaMemcpy(
            static_cast<char*>(destination) + row * destination_pitch,
            static_cast<const char*>(source) + row * source_pitch, width, kind, location);
        if (error != cudaSuccess) {
            return error;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaMemset2D(void* destination, size_t pitch, int byte, size_t width, size_t height,
                         flash::simt::SourceLocation location) {
    if (width > pitch) {
        return noted(cudaErrorInvalidPitchValue);
    }
    for (size_t row = 0; row < height; ++row) {
        const cudaError_t error =
            cudaMemset(static_cast<char*>(destination) + row * pitch, byte, width, location);
        if (error != cudaSuccess) {
            return error;
        }
    }
    return cudaSuccess;
}
