// The shared memory of one block: `__shared__` variables and the dynamic part.
#pragma once

#include <cstddef>

#include "common/simt/machine/symbols.hpp"

namespace flash::simt {

/// Belongs to the OS thread that makes it, because `__shared__` variables are thread-local there.
class SharedMemory {
  public:
    static constexpr size_t most = 227 << 10; // bytes; the largest that any GPU gives a block
    // of the dynamic part, as the 128-byte swizzle of Hopper needs it
    static constexpr size_t alignment = 1024;

    SharedMemory();
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    /// Ready for a block of `kernel` with `dynamic_bytes`: everything holds 0xff, NaN in every
    /// type.
    void reset(const Kernel& kernel, size_t dynamic_bytes);

    char* dynamic() const { return dynamic_; }
    size_t dynamic_bytes() const { return dynamic_bytes_; }
    const Segment& segment() const { return segment_; }

    bool is_dynamic(const char* address) const {
        return static_cast<size_t>(address - region_) < region_bytes;
    }
    bool is_static(const char* address) const {
        return static_cast<size_t>(address - segment_.begin) < segment_.bytes;
    }

    /// An address as descriptors of wgmma hold it, in 20 bits: the dynamic part in the lowest 256
    /// KiB, which are all that a GPU has, then the variables.
    size_t window_address(const char* address) const {
        return is_dynamic(address) ? static_cast<size_t>(address - (region_ + guard))
                                   : window_bytes + static_cast<size_t>(address - segment_.begin);
    }
    char* at_window_address(size_t address) const {
        return address < window_bytes ? region_ + guard + address
                                      : segment_.begin + (address - window_bytes);
    }

    /// The addresses that nothing but the dynamic part uses; only a part of them is memory.
    const char* region_begin() const { return region_; }
    static constexpr size_t guard = 64 << 10; // bytes on both sides that fault
    static constexpr size_t window_bytes = 256 << 10;
    // whole pages, of 64 KiB too
    static constexpr size_t region_bytes = guard + window_bytes + guard;

  private:
    char* region_;
    char* dynamic_ = nullptr;
    size_t dynamic_bytes_ = 0;
    Segment segment_;
};

} // namespace flash::simt
