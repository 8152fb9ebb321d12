// Global memory: the buffers that kernels may touch. Each ends at a page that faults, and knows its
// exact bounds. The program's __device__ and __constant__ variables are buffers, too, where the
// linker has put them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace flash::simt {

/// Memory that kernels may touch, and what messages call it: all of a DeviceMemory, or a part of
/// it, or a variable.
struct Buffer {
    char* begin;
    char* end;
    std::string name;
    uint64_t number;             // in the order in which buffers came to be
    bool constant = false;       // kernels may only read it
    bool host_may_touch = false; // of a variable: managed

    /// What an observer remembers of the buffer, for as long as it is one.
    struct Notes {
        virtual ~Notes() = default;
    };
    mutable std::unique_ptr<Notes> notes;

    size_t bytes() const { return static_cast<size_t>(end - begin); }
    bool contains(const void* address, size_t size) const {
        const auto* const first = static_cast<const char*>(address);
        return first >= begin && first <= end && size <= static_cast<size_t>(end - first);
    }

    /// Of an address that is not inside: "4 bytes past the end of Q".
    std::string outside(const char* address) const;
};

/// Which bytes of a memory have been written: one flag for each of them.
class WrittenBytes {
  public:
    WrittenBytes(const char* begin, size_t bytes); // none of them
    ~WrittenBytes();
    WrittenBytes(const WrittenBytes&) = delete;
    WrittenBytes& operator=(const WrittenBytes&) = delete;

    void mark(const char* address, size_t bytes);
    /// Nobody may touch them; and again, as bytes that have not been written.
    void close(const char* address, size_t bytes);
    void open(const char* address, size_t bytes);
    bool any_closed(const char* address, size_t bytes) const;
    bool all(const char* address, size_t bytes) const;
    bool any(const char* address, size_t bytes) const;
    /// Whether unwritten bytes look like a gap between the members of structs: at some distance,
    /// the structs' size, the same bytes are unwritten before and behind.
    bool is_padding(const char* address, size_t bytes) const;
    /// The next unwritten bytes, from `address` on; at `end` if there are none.
    std::span<const char> next_unwritten(const char* address, const char* end) const;
    /// Those at `address` are, as far as those at `source` are.
    void copy(const char* address, const WrittenBytes& from, const char* source, size_t bytes);

  private:
    enum Flag : char { unwritten, written, closed };
    const char* begin_;
    size_t bytes_;
    char* flags_; // pages that nobody has marked cost nothing
};

/// One allocation. Its addresses come from a reserved range that nothing else uses, so that telling
/// global memory from anything else is one comparison.
class DeviceMemory {
  public:
    /// What it was asked for as. The host may touch all but the device's; that, it reaches by
    /// cudaMemcpy and its kin.
    enum class Kind : uint8_t {
        harness, // of a program for this backend, which touches it unseen
        device,  // cudaMalloc
        managed, // cudaMallocManaged
        pinned,  // cudaMallocHost
        heap     // malloc and new in kernels (device_heap.hpp)
    };

    /// Throws Error when there is not that much memory.
    explicit DeviceMemory(size_t bytes, Kind kind = Kind::harness);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    char* data() const { return data_; }
    size_t bytes() const { return bytes_; }
    Kind kind() const { return kind_; }
    const std::string& name() const { return name_; } // as it was declared last

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

    /// From here on whoever writes says so, but for watched kernels, whose writes are seen.
    void track_writes();
    /// Null when all of it counts as written.
    WrittenBytes* written() const { return written_.get(); }
    void forget_writes() { written_.reset(); }

  private:
    char* data_;
    size_t bytes_;
    Kind kind_;
    char *declared_begin_, *declared_end_;
    std::string name_;
    std::vector<Buffer> buffers_; // in the order of their addresses
    std::unique_ptr<WrittenBytes> written_;
};

/// Addresses in [begin, begin + bytes) are global memory, allocated or not; as many as the system
/// allows.
struct Arena {
    char* begin;
    size_t bytes;
    bool contains(const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - begin) < bytes;
    }
};
const Arena& arena();

/// The same without making it: empty before the first memory.
extern constinit Arena reserved;

/// All that kernels can use as global memory: the arena and the program's variables.
struct GlobalSpace {
    Arena arena;
    char* variables; // of the program, the host's among them
    size_t variable_bytes;

    bool contains(const void* address) const {
        return arena.contains(address) || is_variable(address);
    }
    bool is_variable(const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - variables) < variable_bytes;
    }
    /// A number below 2^37 for each address, and back.
    size_t number(const char* address) const {
        return arena.contains(address) ? static_cast<size_t>(address - arena.begin)
                                       : arena.bytes + static_cast<size_t>(address - variables);
    }
    char* at(size_t number) const {
        return number < arena.bytes ? arena.begin + number : variables + (number - arena.bytes);
    }
};
GlobalSpace global_space();

/// Bytes that the emulated GPU has, and those that no buffer has taken.
size_t total_memory();
size_t memory_left();

/// The memory at or around an address of the arena, null when there is none.
DeviceMemory* memory_around(const void* address);

/// The buffer at or near an address of the global space: in the memory around it, or the variable
/// there or before it. Null when there is none.
const Buffer* buffer_around(const void* address);

/// Nobody watches what kernels write now: all memory that there is counts as written.
void forget_writes();

/// What a pointer is that should be device memory: "host memory (malloc, new or a local variable)",
/// "table, a variable of the host".
std::string describe_host_memory(const void* address);

} // namespace flash::simt
