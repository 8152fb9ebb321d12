// What the calls of the CUDA runtime check of the pointers that they get. A wrong one is a Fault,
// in one line that names the call's place.
#pragma once

#include <cstddef>
#include <string>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/location_id.hpp"

namespace flash::simt {

/// A call of the host: where it stands, or the code that it returns to.
struct HostCall {
    const char* name;
    LocationId place;
    [[noreturn]] void refuse(const std::string& why) const;
};

/// Memory that a call is to use, by a pointer into it.
struct Memory {
    DeviceMemory* memory = nullptr;   // of the arena
    const Buffer* variable = nullptr; // of the device
    const void* address = nullptr;
    bool is_of_device() const; // kernels reach it
    bool is_of_host() const;   // the host does
    std::string name() const;  // "d_x, device memory"
};
Memory memory_at(const void* address);

/// `bytes` from `address` on must be memory that kernels (the host) can use. `role`: "its
/// destination".
void require_device(const HostCall& call, const char* role, const void* address, size_t bytes);
void require_host(const HostCall& call, const char* role, const void* address, size_t bytes);

/// The host's calls write there, or copy from there what may not have been written.
void note_written(const void* address, size_t bytes);
void note_copied(const HostCall& call, const void* to, const void* from, size_t bytes);

/// Frees memory that was asked for as one of two kinds: "cudaMalloc".
void free_memory(const HostCall& call, void* address, DeviceMemory::Kind kind,
                 DeviceMemory::Kind other);

/// Memory of a kind that messages call as the source text of `argument` does: "&a" or "(void**)&a".
/// Throws Error when there is not that much.
void* allocate(size_t bytes, const char* argument, DeviceMemory::Kind kind);

} // namespace flash::simt
