// Twin of common/cuda/launch/device_buffer.cu.
#include "common/cuda/launch/device_buffer.hpp"

#include <memory>

#include "common/simt/machine/device_memory.hpp"

void* flash::allocate_device_memory(size_t bytes, const char* name) {
    auto memory = std::make_unique<simt::DeviceMemory>(bytes);
    memory->declare(0, bytes, name);
    return memory.release()->data();
}

void flash::free_device_memory(void* memory) noexcept { delete simt::memory_around(memory); }
