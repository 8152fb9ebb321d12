#include "common/simt/instructions/atomics.hpp"

#include <atomic>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

void note_atomic(const void* address, unsigned bytes, SourceLocation location) {
    if (active_observers != nullptr) {
        const Caller caller;
        caller.makes(&Observer::access,
                     {static_cast<const char*>(address), bytes, AccessKind::atomic,
                      LocationId::of(location).within(caller.thread.call)});
    }
}

} // namespace

uint64_t atomic_read(const void* address, unsigned bytes, SourceLocation location) {
    note_atomic(address, bytes, location);
    return bytes == 4 ? __atomic_load_n(static_cast<const uint32_t*>(address), __ATOMIC_SEQ_CST)
                      : __atomic_load_n(static_cast<const uint64_t*>(address), __ATOMIC_SEQ_CST);
}

bool atomic_replace(void* address, unsigned bytes, uint64_t& expected, uint64_t desired) {
    if (bytes == 8) {
        return __atomic_compare_exchange_n(static_cast<uint64_t*>(address), &expected, desired,
                                           false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    auto expected4 = static_cast<uint32_t>(expected);
    const bool done = __atomic_compare_exchange_n(static_cast<uint32_t*>(address), &expected4,
                                                  static_cast<uint32_t>(desired), false,
                                                  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    expected = expected4;
    return done;
}

void atomic_add_4(float* address, const float (&values)[4], SourceLocation location) {
    note_atomic(address, sizeof values, location);
    for (int i = 0; i < 4; ++i) {
        std::atomic_ref(address[i]).fetch_add(values[i]);
    }
}

} // namespace flash::simt

void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
