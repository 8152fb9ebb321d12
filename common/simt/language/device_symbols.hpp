// Copies to and from __device__ and __constant__ variables by their names.
#pragma once

#include <cstddef>

#include "common/simt/language/cuda_runtime.hpp"

namespace flash::simt {

/// `bytes` bytes from `offset` on of the variable at `symbol`. Throw Fault as cudaMemcpy does.
void copy_to_symbol(const void* symbol, const void* source, size_t bytes, size_t offset,
                    cudaMemcpyKind kind, SourceLocation location);
void copy_from_symbol(void* destination, const void* symbol, size_t bytes, size_t offset,
                      cudaMemcpyKind kind, SourceLocation location);
void* address_of_symbol(const void* symbol, SourceLocation location);

} // namespace flash::simt

template <class Symbol>
cudaError_t
cudaMemcpyToSymbol(const Symbol& symbol, const void* source, size_t bytes, size_t offset = 0,
                   cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                   flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    flash::simt::copy_to_symbol(&symbol, source, bytes, offset, kind, location);
    return cudaSuccess;
}

template <class Symbol>
cudaError_t
cudaMemcpyFromSymbol(void* destination, const Symbol& symbol, size_t bytes, size_t offset = 0,
                     cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                     flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    flash::simt::copy_from_symbol(destination, &symbol, bytes, offset, kind, location);
    return cudaSuccess;
}

template <class T, class Symbol>
cudaError_t
cudaGetSymbolAddress(T** address, const Symbol& symbol,
                     flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    *address = static_cast<T*>(flash::simt::address_of_symbol(&symbol, location));
    return cudaSuccess;
}

template <class Symbol> cudaError_t cudaGetSymbolSize(size_t* bytes, const Symbol&) {
    *bytes = sizeof(Symbol);
    return cudaSuccess;
}
