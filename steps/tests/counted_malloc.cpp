#include "steps/tests/counted_malloc.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdint>

namespace {

std::atomic<int64_t> live, peak, largest;
std::atomic<size_t> limit = SIZE_MAX;

void raise(std::atomic<int64_t>& mark, int64_t value) {
    int64_t old = mark;
    while (old < value && !mark.compare_exchange_weak(old, value)) {
    }
}

} // namespace

extern "C" {

void* __real_malloc(size_t bytes);
void __real_free(void* memory);

void* __wrap_malloc(size_t bytes) {
    if (bytes > limit) {
        return nullptr;
    }
    void* memory = __real_malloc(bytes);
    const auto got = static_cast<int64_t>(malloc_usable_size(memory));
    raise(largest, got);
    raise(peak, live += got);
    return memory;
}

void __wrap_free(void* memory) {
    live -= static_cast<int64_t>(malloc_usable_size(memory));
    __real_free(memory);
}

} // extern "C"

namespace flash::tests {

MallocCounts malloc_counts() { return {static_cast<size_t>(peak), static_cast<size_t>(largest)}; }

void reset_malloc_counts() { live = peak = largest = 0; }

void limit_malloc(size_t bytes) { limit = bytes; }

} // namespace flash::tests
