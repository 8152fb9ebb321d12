// Copies of more than one row, and those that name a stream. They are made of cudaMemcpy and
// cudaMemset, which check them.
#pragma once

#include <cstddef>

#include "common/simt/language/cuda_runtime.hpp"
#include "common/simt/language/device_symbols.hpp"
#include "common/simt/language/errors.hpp"
#include "common/simt/language/streams.hpp"

inline cudaError_t
cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                cudaStream_t stream = nullptr,
                flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(
        stream, [=] { return cudaMemcpy(destination, source, bytes, kind, location); });
}
inline cudaError_t
cudaMemsetAsync(void* destination, int byte, size_t bytes, cudaStream_t stream = nullptr,
                flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(stream,
                                  [=] { return cudaMemset(destination, byte, bytes, location); });
}
inline cudaError_t
cudaMemcpyPeer(void* destination, int, const void* source, int, size_t bytes,
               flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return cudaMemcpy(destination, source, bytes, cudaMemcpyDeviceToDevice, location);
}
inline cudaError_t
cudaMemcpyPeerAsync(void* destination, int, const void* source, int, size_t bytes,
                    cudaStream_t stream = nullptr,
                    flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(stream, [=] {
        return cudaMemcpy(destination, source, bytes, cudaMemcpyDeviceToDevice, location);
    });
}
template <class Symbol>
cudaError_t cudaMemcpyToSymbolAsync(
    const Symbol& symbol, const void* source, size_t bytes, size_t offset, cudaMemcpyKind kind,
    cudaStream_t stream = nullptr,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(stream, [=, &symbol] {
        return cudaMemcpyToSymbol(symbol, source, bytes, offset, kind, location);
    });
}
template <class Symbol>
cudaError_t cudaMemcpyFromSymbolAsync(
    void* destination, const Symbol& symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
    cudaStream_t stream = nullptr,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(stream, [=, &symbol] {
        return cudaMemcpyFromSymbol(destination, symbol, bytes, offset, kind, location);
    });
}

/// Rows of `width` bytes, a pitch apart.
cudaError_t
cudaMemcpy2D(void* destination, size_t destination_pitch, const void* source, size_t source_pitch,
             size_t width, size_t height, cudaMemcpyKind kind,
             flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
cudaError_t
cudaMemset2D(void* destination, size_t pitch, int byte, size_t width, size_t height,
             flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
inline cudaError_t
cudaMemcpy2DAsync(void* destination, size_t destination_pitch, const void* source,
                  size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                  cudaStream_t stream = nullptr,
                  flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(stream, [=] {
        return cudaMemcpy2D(destination, destination_pitch, source, source_pitch, width, height,
                            kind, location);
    });
}
inline cudaError_t
cudaMemset2DAsync(void* destination, size_t pitch, int byte, size_t width, size_t height,
                  cudaStream_t stream = nullptr,
                  flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return flash::simt::on_stream(
        stream, [=] { return cudaMemset2D(destination, pitch, byte, width, height, location); });
}

namespace flash::simt {

/// The distance between rows of `width` bytes, as cudaMallocPitch chooses it.
constexpr size_t pitch_for(size_t width) { return (width + 511) / 512 * 512; }

template <class T>
cudaError_t malloc_pitch(T** pointer, const char* argument, size_t* pitch, size_t width,
                         size_t height) {
    *pitch = pitch_for(width);
    return cuda_malloc(pointer, argument, *pitch * height);
}

} // namespace flash::simt

#define cudaMallocPitch(pointer, ...) ::flash::simt::malloc_pitch(pointer, #pointer, __VA_ARGS__)
