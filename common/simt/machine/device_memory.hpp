// Global memory: the buffers that kernels may touch. Each ends at a page that faults, and knows its
// exact bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flash::simt {

/// Memory that kernels may touch, and what messages call it: all of a DeviceMemory, or a part of
/// it.
struct Buffer {
    char* begin;
    char* end;
    std::string name;
    uint64_t number; // in the order in which buffers came to be

    /// What an observer remembers of the buffer, for as long as it is one.
    struct Notes {
        virtual ~Notes() = default;
    };
    mutable std::unique_ptr<Notes> notes;

    size_t bytes() const { return static_cast<size_t>(end - begin); }

    /// Of an address that is not inside: "4 bytes past the end of Q".
    std::string outside(const char* address) const;
};

/// One allocation. Its addresses come from a reserved range that nothing else uses, so that telling
/// global memory from anything else is one comparison.
class DeviceMemory {
  public:
    /// Throws Error when there is not that much memory.
    explicit DeviceMemory(size_t bytes);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    char* data() const { return data_; }
    size_t bytes() const { return bytes_; }

    /// Says that kernels may touch only `bytes` from `offset` on, and what messages call that
    /// buffer. At first it is all of the memory.
    void declare(size_t offset, size_t bytes, const std::string& name);

    /// Says that of what was declared kernels may touch only the parts that are added from here on,
    /// each of them a buffer. Parts come in the order of their addresses. Throws Error when a part
    /// is not inside what was declared.
    void begin_parts() { buffers_.clear(); }
    void add_part(char* begin, size_t bytes, const std::string& name);

    /// The buffer at an address, or else the one before it, or else the first; null when there is
    /// none.
    const Buffer* buffer_near(const char* address) const;

  private:
    char* data_;
    size_t bytes_;
    char *declared_begin_, *declared_end_;
    std::vector<Buffer> buffers_; // in the order of their addresses
};

/// Addresses in [begin, begin + bytes) are global memory, allocated or not.
struct Arena {
    static constexpr size_t bytes = size_t{1} << 37;
    char* begin;
    bool contains(const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - begin) < bytes;
    }
};
const Arena& arena();

/// The memory at or around an address of the arena, null when there is none.
DeviceMemory* memory_around(const void* address);

/// The buffer at or near an address of the arena, in the memory around it; null when there is none.
const Buffer* buffer_around(const void* address);

} // namespace flash::simt
