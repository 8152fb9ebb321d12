#include "common/cuda/launch/device_buffer.hpp"

#include <algorithm>

#include "common/cuda/launch/error.hpp"
#include "common/cuda/launch/stream.hpp"

namespace flash {

// From the stream-ordered pool, which can keep freed memory: a buffer then costs microseconds, not
// the milliseconds in which cudaMalloc maps gigabytes.
void* allocate_device_memory(size_t bytes, const char* /*name*/) {
    void* memory = nullptr;
    FLASH_CHECK_CUDA(cudaMallocAsync(&memory, std::max<size_t>(bytes, 1), current_stream));
    return memory;
}

// The status is dropped: a destructor cannot throw, and the next checked call reports the same
// error.
void free_device_memory(void* memory) noexcept { cudaFreeAsync(memory, current_stream); }

} // namespace flash
