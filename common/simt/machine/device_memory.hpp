// Global memory: the buffers that kernels may touch. Each ends at a page that faults, and knows its exact bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace flash::simt {

/// One buffer. Its addresses come from a reserved range that nothing else uses, so that telling global memory
/// from anything else is one comparison.
class DeviceMemory {
  public:
    /// Throws Error when there is not that much memory.
    explicit DeviceMemory(size_t bytes);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    char* data() const { return data_; }
    size_t bytes() const { return bytes_; }

    /// Says that kernels may touch only `bytes` from `offset` on, and what messages call the buffer.
    void declare(size_t offset, size_t bytes, const std::string& name);

    /// The part that kernels may touch: all of it, or what declare() said.
    char* valid_begin() const { return data_ + valid_offset_; }
    char* valid_end() const { return valid_begin() + valid_bytes_; }
    const std::string& name() const { return name_; }

    /// Of an address that is not in that part: "4 bytes past the end of Q".
    std::string outside(const char* address) const;

    /// Counts buffers in the order of their allocation.
    uint64_t number() const { return number_; }

    /// What an observer remembers of the buffer, for as long as nobody declares it anew.
    struct Notes {
        virtual ~Notes() = default;
    };
    std::unique_ptr<Notes>& notes() const { return notes_; }

  private:
    char* data_;
    size_t bytes_;
    size_t valid_offset_ = 0;
    size_t valid_bytes_;
    std::string name_ = "a buffer in global memory";
    uint64_t number_;
    mutable std::unique_ptr<Notes> notes_;
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

/// The buffer at or around an address of the arena, null when there is none.
const DeviceMemory* buffer_around(const void* address);

} // namespace flash::simt
