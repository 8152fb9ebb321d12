// The functions that code compiled with -fsanitize=thread calls. Linking without that option leaves
// them to us.
#include <cstddef>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/symbols.hpp"
#include "common/simt/watch/watch.hpp"

namespace flash::simt {
namespace {

const size_t base = executable().load_address;

/// Apart from note(), so that nothing is saved and restored where nobody listens.
template <void (Observer::*event)(unsigned, const AccessEvent&)>
[[gnu::noinline]] void tell(const void* address, unsigned bytes, AccessKind kind,
                            const void* return_address) {
    Caller().tells(event, {static_cast<const char*>(address), bytes, kind,
                           LocationId::of_code(return_address, base)});
}

/// A volatile access, which other threads may wait for, or which waits for them. Nobody need be
/// listening for those to get their turn.
[[gnu::noinline]] void note_volatile(void* address, unsigned bytes, AccessKind kind,
                                     const void* return_address) {
    if (running_block == nullptr) {
        return;
    }
    const bool observed = active_observers != nullptr;
    const Caller caller;
    if (address >= __builtin_frame_address(0) && address < caller.thread.stack_top) {
        return; // a variable of the thread
    }
    const LocationId origin = LocationId::of_code(return_address, base);
    if (kind == AccessKind::load) {
        caller.block.look(address, bytes, origin);
    }
    if (observed) {
        caller.tells(&Observer::access,
                     {static_cast<const char*>(address), bytes, kind, origin, Scope::system});
    }
    if (observed && kind == AccessKind::load) {
        caller.tells(&Observer::strong_read, address, Scope::system);
    } else if (observed) {
        caller.tells(&Observer::strong_write, address, Scope::system, true);
    }
}

/// Most accesses are to local variables: addresses from the frame of this call up to the top of the
/// thread's stack.
[[gnu::always_inline]] inline void note(const void* address, unsigned bytes, AccessKind kind,
                                        const void* return_address) {
    if (active_observers != nullptr) {
        const Thread& thread = current_block().current();
        if (address < __builtin_frame_address(0) || address >= thread.stack_top) {
            tell<&Observer::access>(address, bytes, kind, return_address);
        } else if (thread.locals_observed) {
            tell<&Observer::access_local>(address, bytes, kind, return_address);
        }
    }
}

/// A copy of a struct: the accesses that a GPU needs for it, given its address.
[[gnu::always_inline]] inline void note_range(const void* address, size_t size, AccessKind kind,
                                              const void* return_address) {
    const auto* const begin = static_cast<const char*>(address);
    const size_t low_bits = reinterpret_cast<size_t>(address) | size;
    const unsigned step = low_bits % 4 == 0 ? 4 : low_bits % 2 == 0 ? 2 : 1;
    for (size_t offset = 0; offset < size; offset += step) {
        note(begin + offset, step, kind, return_address);
    }
}

} // namespace
} // namespace flash::simt

using namespace flash::simt;

// Names and signatures are the compilers' (tsan_interface.h of LLVM).
#define FLASH_SIMT_CALLBACK(name, size, kind)                                                      \
    void __tsan_##name##size(void* address) {                                                      \
        note(address, size, kind, __builtin_return_address(0));                                    \
    }
#define FLASH_SIMT_VOLATILE_CALLBACK(name, size, kind)                                             \
    void __tsan_##name##size(void* address) {                                                      \
        note_volatile(address, size, kind, __builtin_return_address(0));                           \
    }
#define FLASH_SIMT_CALLBACKS(size)                                                                 \
    FLASH_SIMT_CALLBACK(read, size, AccessKind::load)                                              \
    FLASH_SIMT_CALLBACK(write, size, AccessKind::store)                                            \
    FLASH_SIMT_CALLBACK(unaligned_read, size, AccessKind::load)                                    \
    FLASH_SIMT_CALLBACK(unaligned_write, size, AccessKind::store)                                  \
    FLASH_SIMT_VOLATILE_CALLBACK(volatile_read, size, AccessKind::load)                            \
    FLASH_SIMT_VOLATILE_CALLBACK(volatile_write, size, AccessKind::store)                          \
    FLASH_SIMT_VOLATILE_CALLBACK(unaligned_volatile_read, size, AccessKind::load)                  \
    FLASH_SIMT_VOLATILE_CALLBACK(unaligned_volatile_write, size, AccessKind::store)

// std::atomic and shared_ptr become calls too, in the host's part of a kernel file as well.
#define FLASH_SIMT_NOTE_ATOMIC(bits, Type)                                                         \
    note(const_cast<Type*>(address), bits / 8, AccessKind::atomic, __builtin_return_address(0))
#define FLASH_SIMT_ATOMIC_UPDATE(bits, Type, name)                                                 \
    Type __tsan_atomic##bits##_##name(volatile Type* address, Type value, int) {                   \
        FLASH_SIMT_NOTE_ATOMIC(bits, Type);                                                        \
        return __atomic_##name(address, value, __ATOMIC_SEQ_CST);                                  \
    }
#define FLASH_SIMT_ATOMIC_COMPARE(bits, Type, name)                                                \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile Type* address, Type* expected,      \
                                                      Type desired, int, int) {                    \
        FLASH_SIMT_NOTE_ATOMIC(bits, Type);                                                        \
        return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,    \
                                           __ATOMIC_SEQ_CST);                                      \
    }
#define FLASH_SIMT_ATOMIC_CALLBACKS(bits, Type)                                                    \
    Type __tsan_atomic##bits##_load(const volatile Type* address, int) {                           \
        FLASH_SIMT_NOTE_ATOMIC(bits, Type);                                                        \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile Type* address, Type value, int) {                    \
        FLASH_SIMT_NOTE_ATOMIC(bits, Type);                                                        \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    Type __tsan_atomic##bits##_exchange(volatile Type* address, Type value, int) {                 \
        FLASH_SIMT_NOTE_ATOMIC(bits, Type);                                                        \
        return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                              \
    }                                                                                              \
    FLASH_SIMT_ATOMIC_UPDATE(bits, Type, fetch_add)                                                \
    FLASH_SIMT_ATOMIC_UPDATE(bits, Type, fetch_sub)                                                \
    FLASH_SIMT_ATOMIC_UPDATE(bits, Type, fetch_and)                                                \
    FLASH_SIMT_ATOMIC_UPDATE(bits, Type, fetch_or)                                                 \
    FLASH_SIMT_ATOMIC_UPDATE(bits, Type, fetch_xor)                                                \
    FLASH_SIMT_ATOMIC_COMPARE(bits, Type, strong)                                                  \
    FLASH_SIMT_ATOMIC_COMPARE(bits, Type, weak)

extern "C" {
FLASH_SIMT_CALLBACKS(1)
FLASH_SIMT_CALLBACKS(2)
FLASH_SIMT_CALLBACKS(4)
FLASH_SIMT_CALLBACKS(8)
FLASH_SIMT_CALLBACKS(16)

FLASH_SIMT_ATOMIC_CALLBACKS(8, uint8_t)
FLASH_SIMT_ATOMIC_CALLBACKS(16, uint16_t)
FLASH_SIMT_ATOMIC_CALLBACKS(32, uint32_t)
FLASH_SIMT_ATOMIC_CALLBACKS(64, uint64_t)

void __tsan_read_range(void* address, unsigned long size) {
    note_range(address, size, AccessKind::load, __builtin_return_address(0));
}
void __tsan_write_range(void* address, unsigned long size) {
    note_range(address, size, AccessKind::store, __builtin_return_address(0));
}

void __tsan_init() { start_watching(); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
}
