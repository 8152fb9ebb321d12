#include "common/simt/language/device_symbols.hpp"

#include "common/simt/language/pointer_check.hpp"

namespace flash::simt {
namespace {

/// The bytes from `offset` on; anything but a variable of the device is refused.
char* inside(const HostCall& call, const void* symbol, size_t bytes, size_t offset) {
    const Memory at = memory_at(symbol);
    if (at.variable == nullptr) {
        call.refuse("its symbol must be a __device__ or __constant__ variable, but it is " +
                    at.name());
    }
    char* const begin = static_cast<char*>(const_cast<void*>(symbol)) + offset;
    require_device(call, "its symbol", begin, bytes);
    return begin;
}

} // namespace

void copy_to_symbol(const void* symbol, const void* source, size_t bytes, size_t offset,
                    cudaMemcpyKind kind, SourceLocation location) {
    const HostCall call{"cudaMemcpyToSymbol", LocationId::of(location)};
    copy_memory(call, inside(call, symbol, bytes, offset), source, bytes, kind);
}

void copy_from_symbol(void* destination, const void* symbol, size_t bytes, size_t offset,
                      cudaMemcpyKind kind, SourceLocation location) {
    const HostCall call{"cudaMemcpyFromSymbol", LocationId::of(location)};
    copy_memory(call, destination, inside(call, symbol, bytes, offset), bytes, kind);
}

void* address_of_symbol(const void* symbol, SourceLocation location) {
    return inside({"cudaGetSymbolAddress", LocationId::of(location)}, symbol, 0, 0);
}

} // namespace flash::simt
