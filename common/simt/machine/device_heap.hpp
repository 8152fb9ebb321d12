// Memory that kernels ask for: malloc and new. One part of global memory, in which the detector
// knows what has been given.
#pragma once

#include <cstddef>
#include <string>

namespace flash::simt {

/// As many bytes as a GPU gives at the same time unless cudaDeviceSetLimit says otherwise.
inline constexpr size_t device_heap_limit = size_t{8} << 20;

/// Aligned to 16 bytes; null when the heap is full.
void* allocate_on_heap(size_t bytes);

/// Whether an address belongs to the heap.
bool is_on_heap(const void* address);

/// False when nothing that was given and not freed begins there.
bool free_on_heap(void* address);

/// Of an address that is not in memory that was given: "4 bytes past the end of 40 bytes that a
/// kernel asked for".
std::string outside_of_heap(const void* address);

/// A launch begins: what was freed before can be given again. (Within a launch that would look as
/// if threads shared it.)
void recycle_heap();

} // namespace flash::simt
