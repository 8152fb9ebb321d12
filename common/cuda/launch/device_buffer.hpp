// Device memory for programs and tests. A kernel file does not use it, because a rung's memory
// comes from its caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace flash {

/// Device memory, not initialised, aligned to 256 bytes. `name` is what the SIMT backend calls it
/// in its messages. Throws Error when there is not that much memory.
void* allocate_device_memory(size_t bytes, const char* name);

/// On a GPU the memory is freed once all kernels that were launched before have ended.
void free_device_memory(void* memory) noexcept;

/// `size` elements of T in device memory, freed on destruction. A launcher may return while its
/// kernels still run.
template <class T> class DeviceBuffer {
  public:
    DeviceBuffer(int64_t size, const char* name)
        : memory_(allocate_device_memory(static_cast<size_t>(size) * sizeof(T), name)) {}

    T* data() const { return static_cast<T*>(memory_.get()); }

  private:
    struct Free {
        void operator()(void* memory) const noexcept { free_device_memory(memory); }
    };
    std::unique_ptr<void, Free> memory_;
};

} // namespace flash
