// Addresses of shared memory as numbers of 32 bits, as PTX has them.
#pragma once

#include <cstddef>

namespace flash::simt {

/// The memory at an address that __cvta_generic_to_shared() has given.
char* at_shared_address(size_t address);

} // namespace flash::simt

size_t __cvta_generic_to_shared(const void* pointer);
inline void* __cvta_shared_to_generic(size_t address) {
    return flash::simt::at_shared_address(address);
}
inline size_t __cvta_generic_to_global(const void* pointer) {
    return reinterpret_cast<size_t>(pointer);
}
inline void* __cvta_global_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
