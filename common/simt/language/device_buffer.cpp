// Twin of common/cuda/launch/device_buffer.cu, whose header declares these for both.
#include <cstddef>
#include <memory>

#include "common/simt/machine/device_memory.hpp"

namespace flash {

void* allocate_device_memory(size_t bytes, const char* name) {
    auto memory = std::make_unique<simt::DeviceMemory>(bytes);
    memory->declare(0, bytes, name);
    return memory.release()->data();
}

void free_device_memory(void* memory) noexcept { delete simt::memory_around(memory); }

} // namespace flash
