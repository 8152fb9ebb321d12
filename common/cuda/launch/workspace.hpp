// Memory that a rung needs between its kernels, or for blocks to meet in. The caller brings it: a
// rung allocates nothing and keeps nothing, so that calls on other streams, or in CUDA graphs that
// are replayed, cannot disturb each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/error.hpp"

#ifdef __NVCC__
namespace flash::detail {
constexpr int64_t bytes_between_parts = 0;
inline void begin_parts(void*) {}
inline void add_part(void*, int64_t, const char*) {}
} // namespace flash::detail
#else
#include "common/simt/language/workspace.hpp"
#endif

namespace flash {

constexpr int64_t workspace_alignment = 256; // bytes: of a workspace, and of each of its parts

/// How much of a workspace a part of `size` elements of T takes. A rung's workspace_bytes adds its
/// parts up.
template <class T> constexpr int64_t part_bytes(int64_t size) {
    const int64_t bytes = size * static_cast<int64_t>(sizeof(T)) + detail::bytes_between_parts;
    return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

/// Divides the workspace of one call into parts, one after the other.
class Workspace {
  public:
    /// `memory` is as large as the rung's workspace_bytes says. Throws Error when it is null or not
    /// aligned.
    explicit Workspace(void* memory) : next_(static_cast<char*>(memory)) {
        if (memory == nullptr || reinterpret_cast<uintptr_t>(memory) % workspace_alignment != 0) {
            throw Error("a workspace is needed: workspace_bytes(problem) bytes, at a multiple of " +
                        std::to_string(workspace_alignment));
        }
        detail::begin_parts(memory);
    }

    /// The next part: `size` elements of T with unknown contents. `name` is what the SIMT backend
    /// calls it in messages.
    template <class T> T* part(int64_t size, const char* name) {
        char* const begin = next_;
        detail::add_part(begin, size * static_cast<int64_t>(sizeof(T)), name);
        next_ += part_bytes<T>(size);
        return reinterpret_cast<T*>(begin);
    }

  private:
    char* next_;
};

} // namespace flash
