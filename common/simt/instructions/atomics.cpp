#include "common/simt/instructions/atomics.hpp"

#include <atomic>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

template <class T> bool replace(void* address, uint64_t& expected, uint64_t desired) {
    auto expected_bits = static_cast<T>(expected);
    const bool done = __atomic_compare_exchange_n(static_cast<T*>(address), &expected_bits,
                                                  static_cast<T>(desired), false, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_SEQ_CST);
    expected = expected_bits;
    return done;
}

void note(const void* address, unsigned bytes, Scope scope, Atomic how, SourceLocation location) {
    if (active_observers != nullptr) {
        const Caller caller;
        const LocationId origin = LocationId::of(location).within(caller.thread.call);
        caller.makes(&Observer::access, {static_cast<const char*>(address), bytes,
                                         AccessKind::atomic, origin, scope, how});
        caller.block.note_write(origin);
    }
}

void fence(Scope scope) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (active_observers != nullptr) {
        Caller().tells(&Observer::fence, scope);
    }
}

} // namespace

uint64_t atomic_begin(const void* address, unsigned bytes, Scope scope, Atomic how,
                      SourceLocation location) {
    note(address, bytes, scope, how, location);
    return bytes == 2   ? __atomic_load_n(static_cast<const uint16_t*>(address), __ATOMIC_SEQ_CST)
           : bytes == 4 ? __atomic_load_n(static_cast<const uint32_t*>(address), __ATOMIC_SEQ_CST)
                        : __atomic_load_n(static_cast<const uint64_t*>(address), __ATOMIC_SEQ_CST);
}

bool atomic_replace(void* address, unsigned bytes, uint64_t& expected, uint64_t desired) {
    return bytes == 2   ? replace<uint16_t>(address, expected, desired)
           : bytes == 4 ? replace<uint32_t>(address, expected, desired)
                        : replace<uint64_t>(address, expected, desired);
}

void atomic_end(const void* address, uint64_t found, bool written, Scope scope,
                SourceLocation location) {
    const bool observed = active_observers != nullptr;
    const Caller caller;
    if (observed) {
        caller.tells(&Observer::strong_read, address, scope);
        if (written) {
            caller.tells(&Observer::strong_write, address, scope, false);
        }
    }
    caller.block.look(address, found, LocationId::of(location));
}

void atomic_add_4(float* address, const float (&values)[4], SourceLocation location) {
    note(address, sizeof values, Scope::device, Atomic::updates, location);
    for (int i = 0; i < 4; ++i) {
        std::atomic_ref(address[i]).fetch_add(values[i]);
    }
}

} // namespace flash::simt

using namespace flash::simt;

void __threadfence() { fence(Scope::device); }
void __threadfence_block() { fence(Scope::block); }
void __threadfence_system() { fence(Scope::system); }
