// Memory that a rung needs between its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/cuda/device_backend.hpp"

namespace flash {

/// `size` elements of T in device memory, not initialised, freed on destruction: on a GPU once the kernels
/// launched until then have ended, so that a launcher may return while they run.
template <class T> class DeviceBuffer {
  public:
    /// `name` is what the SIMT backend calls it in its messages. Throws Error when there is not that much memory.
    DeviceBuffer(int64_t size, const char* name)
        : memory_(device_backend().allocate(static_cast<size_t>(size) * sizeof(T))) {
        memory_->declare(0, memory_->bytes(), name);
    }

    T* data() const { return static_cast<T*>(memory_->data()); }

  private:
    std::unique_ptr<Memory> memory_;
};

} // namespace flash
