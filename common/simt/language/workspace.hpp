// Parts of a workspace, whose names and bounds the SIMT backend knows.
#pragma once

#include <cstdint>

namespace flash::detail {

/// Belongs to no part, so that whoever leaves one does not come into the next.
constexpr int64_t bytes_between_parts = 1 << 16;

/// From here on kernels may touch no part of this memory but those that are added. Memory of the
/// host has no parts.
void begin_parts(void* memory);

/// Throws Error when the part does not fit into its memory.
void add_part(void* begin, int64_t bytes, const char* name);

} // namespace flash::detail
