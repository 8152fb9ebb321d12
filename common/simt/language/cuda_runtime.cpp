#include "common/simt/language/cuda_runtime.hpp"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "common/error.hpp"
#include "common/simt/language/launch.hpp"
#include "common/simt/language/pointer_check.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/stream_order.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {
namespace {

using Kind = DeviceMemory::Kind;

cudaError_t allocate_for(void** pointer, const char* argument, size_t bytes, Kind kind) {
    try {
        *pointer = allocate(bytes, argument, kind);
        return cudaSuccess;
    } catch (const Error& error) {
        static std::once_flag told; // programs may try again and again, with less
        const char* const name = argument + (argument[0] == '&' ? 1 : 0);
        std::call_once(told, [&] { std::fprintf(stderr, "%s: %s\n", name, error.what()); });
        return noted(cudaErrorMemoryAllocation);
    } catch (const std::bad_alloc&) {
        return noted(cudaErrorMemoryAllocation);
    }
}

LocationId place_of(const void* return_address) {
    return LocationId::of_code(return_address, executable().load_address);
}

bool reads_device(cudaMemcpyKind kind) {
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}
bool writes_device(cudaMemcpyKind kind) {
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}

} // namespace

cudaError_t cuda_malloc(void** pointer, const char* argument, size_t bytes) {
    return allocate_for(pointer, argument, bytes, Kind::device);
}

cudaError_t malloc_managed(void** pointer, const char* argument, size_t bytes) {
    return allocate_for(pointer, argument, bytes, Kind::managed);
}

cudaError_t malloc_host(void** pointer, const char* argument, size_t bytes) {
    return allocate_for(pointer, argument, bytes, Kind::pinned);
}

void copy_memory(const HostCall& call, void* destination, const void* source, size_t bytes,
                 cudaMemcpyKind kind) {
    if (bytes == 0) {
        return;
    }
    const auto turn = take_turn();
    const bool known = kind != cudaMemcpyDefault;
    const bool to_device = known ? writes_device(kind) : memory_at(destination).is_of_device();
    const bool from_device = known ? reads_device(kind) : memory_at(source).is_of_device();
    (to_device ? require_device : require_host)(call, "its destination", destination, bytes);
    (from_device ? require_device : require_host)(call, "its source", source, bytes);
    begin_stream_work(call.name + std::string(host_goes_on() ? "Async" : ""), call.place);
    touch_by_work(source, bytes, Touch::reads);
    touch_by_work(destination, bytes, Touch::writes);
    std::memmove(destination, source, bytes);
    note_copied(call, destination, source, bytes);
    end_stream_copy(!reserved.contains(source) || !reserved.contains(destination));
}

void fill_memory(const HostCall& call, void* memory, unsigned value, unsigned element_bytes,
                 size_t count) {
    const size_t bytes = count * element_bytes;
    if (bytes == 0) {
        return;
    }
    const auto turn = take_turn();
    require_device(call, "its memory", memory, bytes);
    begin_stream_work(call.name, call.place);
    touch_by_work(memory, bytes, Touch::writes);
    if (element_bytes == 1) {
        std::memset(memory, static_cast<int>(value), count);
    }
    for (size_t i = 0; i < count && element_bytes > 1; ++i) {
        std::memcpy(static_cast<char*>(memory) + i * element_bytes, &value, element_bytes);
    }
    note_written(memory, bytes);
}

} // namespace flash::simt

using namespace flash::simt;

cudaError_t cudaDeviceSynchronize() {
    if (running_block != nullptr) {
        const RuntimeCode runtime;
        Block& block = current_block();
        block.stop_thread({FaultKind::launch,
                           "a kernel waits for its launches, which begin when its grid has ended; "
                           "CUDA 12 has taken that away, too",
                           block.place(block.current().number, "calls cudaDeviceSynchronize",
                                       place_of(__builtin_return_address(0)))});
    }
    host_waits_for_all();
    return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
    host_waits_for_all();
    free_memory({"cudaFree", place_of(__builtin_return_address(0))}, pointer, Kind::device,
                Kind::managed);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
    host_waits_for_all();
    free_memory({"cudaFreeHost", place_of(__builtin_return_address(0))}, pointer, Kind::pinned,
                Kind::pinned);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* pointer, unsigned /*flags*/,
                                     SourceLocation location) {
    const Memory memory = memory_at(pointer);
    if (memory.memory == nullptr || memory.memory->kind() != Kind::pinned) {
        HostCall{"cudaHostGetDevicePointer", LocationId::of(location)}.refuse(
            "its pointer must be memory of cudaMallocHost or cudaHostAlloc, but it is " +
            memory.name());
    }
    *on_device = pointer;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                       SourceLocation location) {
    copy_memory({"cudaMemcpy", LocationId::of(location)}, destination, source, bytes, kind);
    return cudaSuccess;
}

cudaError_t cudaMemset(void* destination, int byte, size_t bytes, SourceLocation location) {
    if (bytes > 0) {
        const auto value = static_cast<unsigned char>(byte);
        fill_memory({"cudaMemset", LocationId::of(location)}, destination, value, 1, bytes);
    }
    return cudaSuccess;
}

void flash::clear_bytes(void* memory, size_t bytes) {
    std::memset(memory, 0, bytes);
    note_written(memory, bytes);
}
