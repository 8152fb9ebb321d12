// malloc, new and their kin. In watched kernels they give memory of the device; anywhere else they
// are the C library's.
#include <cstdlib>
#include <new>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/device_heap.hpp"
#include "common/simt/machine/host_misuse.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {
namespace {

LocationId line_of_call(const void* return_address) {
    static const size_t base = executable().load_address;
    return LocationId::of_code(return_address, base);
}

[[noreturn]] void stop_full(size_t bytes, const void* return_address) {
    const Caller caller;
    caller.block.stop({FaultKind::invalid_access,
                       "the device heap is full: kernels hold " +
                           std::to_string(device_heap_limit >> 20) + " MiB, and new returns null",
                       caller.block.place(caller.thread.number, "asks for " + plural(bytes, "byte"),
                                          line_of_call(return_address))});
}

/// Memory of the arena that is not the heap's, or not any more.
[[noreturn]] void stop_wrong_free(void* address, const void* return_address) {
    const bool in_kernel = active_observers != nullptr;
    const RuntimeCode runtime;
    const DeviceMemory* const memory = memory_around(address);
    const std::string what = is_on_heap(address) ? "memory " + outside_of_heap(address)
                             : memory == nullptr
                                 ? "device memory that was freed or never allocated"
                                 : memory->name() + ", which is not from malloc or new in a kernel";
    if (!in_kernel) {
        end_program(
            host_misuse("free or delete", "it frees " + what, line_of_call(return_address)));
    }
    Block& block = current_block();
    block.stop({FaultKind::invalid_access, "free or delete of " + what,
                block.place(block.current().number, "frees it", line_of_call(return_address))});
}

void* allocate(size_t bytes) {
    const RuntimeCode runtime;
    return allocate_on_heap(bytes);
}

/// Whether it was memory of the device.
bool free_of_device(void* address, const void* return_address) {
    if (!reserved.contains(address)) {
        return false;
    }
    bool done = false;
    {
        const RuntimeCode runtime;
        done = free_on_heap(address);
    }
    if (!done) {
        stop_wrong_free(address, return_address);
    }
    return true;
}

} // namespace
} // namespace flash::simt

using namespace flash::simt;

extern "C" {

void* flash_simt_malloc(size_t bytes) noexcept {
    return active_observers != nullptr ? allocate(bytes) : std::malloc(bytes);
}

void flash_simt_free(void* address) noexcept {
    if (!free_of_device(address, __builtin_return_address(0))) {
        std::free(address);
    }
}
}

void* operator new(size_t bytes) {
    if (active_observers != nullptr) {
        void* const given = allocate(bytes);
        if (given == nullptr) {
            stop_full(bytes, __builtin_return_address(0));
        }
        return given;
    }
    void* const given = std::malloc(bytes == 0 ? 1 : bytes);
    if (given == nullptr) {
        throw std::bad_alloc();
    }
    return given;
}

void operator delete(void* address) noexcept {
    if (!free_of_device(address, __builtin_return_address(0))) {
        std::free(address);
    }
}

void operator delete(void* address, size_t) noexcept {
    if (!free_of_device(address, __builtin_return_address(0))) {
        std::free(address);
    }
}
