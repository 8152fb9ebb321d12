// The functions that code compiled with -fsanitize=thread calls. Linking without that option leaves
// them to us.
#include <cstddef>
#include <cstring>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/symbols.hpp"
#include "common/simt/observers/detector.hpp"
#include "common/simt/observers/host_access.hpp"
#include "common/simt/observers/observers.hpp"

namespace flash::simt {
namespace {

const size_t load_base = executable().load_address;

/// Whether nobody has to be told: the most frequent case, on a way of its own.
inline bool is_usual_load(const Block& block, const Thread& thread, const void* address,
                          LocationId line) {
    return sole_detector != nullptr && !block.is_unsettled() &&
           sole_detector->is_usual_load(thread.number, static_cast<const char*>(address), line);
}

/// Apart from note(), so that nothing is saved and restored where nobody listens.
template <void (Observer::*event)(unsigned, const AccessEvent&)>
[[gnu::noinline]] void tell(const void* address, unsigned bytes, AccessKind kind,
                            const void* return_address) {
    const Caller caller;
    const auto* const place = static_cast<const char*>(address);
    if (bytes > 1 || !is_guard(place, caller.block.shared().segment())) {
        const LocationId line =
            LocationId::of_code(return_address, load_base).within(caller.thread.call);
        // of loads outside of device functions, note() has asked already
        const bool may_be_usual = bytes == 4 && kind == AccessKind::load && caller.thread.call != 0;
        if (!may_be_usual || !is_usual_load(caller.block, caller.thread, place, line)) {
            caller.makes(event, {place, bytes, kind, line});
        }
        if (event == &Observer::access && kind != AccessKind::load) {
            caller.block.note_write(line);
        }
    }
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
    const LocationId origin =
        LocationId::of_code(return_address, load_base).within(caller.thread.call);
    if (kind == AccessKind::load) {
        caller.block.look(address, bytes, origin);
    }
    if (observed) {
        caller.makes(&Observer::access,
                     {static_cast<const char*>(address), bytes, kind, origin, Scope::system});
    }
    if (observed && kind == AccessKind::load) {
        caller.tells(&Observer::strong_read, address, Scope::system);
    } else if (observed) {
        caller.tells(&Observer::strong_write, address, Scope::system, true);
        caller.block.note_write(origin);
    }
}

/// Most accesses are to local variables: addresses from the frame of this call up to the top of the
/// thread's stack.
[[gnu::noinline]] void note(const void* address, unsigned bytes, AccessKind kind,
                            const void* return_address) {
    if (active_observers != nullptr) {
        const Block& block = current_block();
        const Thread& thread = block.current();
        if (bytes == 4 && kind == AccessKind::load && thread.call == 0 &&
            is_usual_load(block, thread, address, LocationId::of_code(return_address, load_base))) {
            return;
        }
        if (address < __builtin_frame_address(0) || address >= thread.stack_top) {
            tell<&Observer::access>(address, bytes, kind, return_address);
        } else if (thread.locals_observed) {
            tell<&Observer::access_local>(address, bytes, kind, return_address);
        }
    } else if (may_be_of_device(address)) [[unlikely]] {
        check_host_access(address, bytes, kind, return_address);
    }
}

/// A copy of a struct, or of bytes that may lie anywhere: the accesses that a GPU needs for it,
/// given its address.
[[gnu::always_inline]] inline void note_range(const void* address, size_t size, AccessKind kind,
                                              const void* return_address) {
    if (active_observers == nullptr) {
        if (size != 0 && may_be_of_device(address)) [[unlikely]] {
            check_host_access(address, size, kind, return_address);
        }
        return;
    }
    const auto* const begin = static_cast<const char*>(address);
    const size_t low_bits = reinterpret_cast<size_t>(address) | size;
    const unsigned step = low_bits % 4 == 0 ? 4 : low_bits % 2 == 0 ? 2 : 1;
    Thread& thread = current_block().current();
    thread.copied = {begin, size};
    for (size_t offset = 0; offset < size; offset += step) {
        note(begin + offset, step, kind, return_address);
    }
    thread.copied = {};
}

/// Deeper calls count as made by the last of these: a recursion would give every level lines of its
/// own, and what is remembered of memory grows with their number.
constexpr size_t deepest_call = 64;

/// A device function that was not inlined, or the kernel, or what calls that.
[[gnu::noinline]] void enter_function(const void* caller, const void* inside) {
    const RuntimeCode runtime;
    const Block& block = current_block();
    Thread& thread = block.current();
    const auto in_file = [](const void* address) {
        return static_cast<uint32_t>(reinterpret_cast<size_t>(address) - load_base);
    };
    constexpr uint32_t beginning = 256; // bytes of code before the function tells of itself
    thread.calls.push_back(thread.call);
    if (thread.calls.size() > deepest_call) {
        return;
    }
    thread.call = in_file(inside) - in_file(block.launch().kernel) < beginning
                      ? 0
                      : call_number(thread.call, in_file(caller), in_file(inside));
}

[[gnu::noinline]] void leave_function() {
    const RuntimeCode runtime;
    Thread& thread = current_block().current();
    if (!thread.calls.empty()) {
        thread.call = thread.calls.back();
        thread.calls.pop_back();
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
// The compiler does not know that it is aligned: members of packed structs, pieces of a memcpy.
#define FLASH_SIMT_RANGE_CALLBACK(name, size, kind)                                                \
    void __tsan_##name##size(void* address) {                                                      \
        if (reinterpret_cast<size_t>(address) % size == 0) {                                       \
            note(address, size, kind, __builtin_return_address(0));                                \
        } else {                                                                                   \
            note_range(address, size, kind, __builtin_return_address(0));                          \
        }                                                                                          \
    }
#define FLASH_SIMT_CALLBACKS(size)                                                                 \
    FLASH_SIMT_CALLBACK(read, size, AccessKind::load)                                              \
    FLASH_SIMT_CALLBACK(write, size, AccessKind::store)                                            \
    FLASH_SIMT_RANGE_CALLBACK(unaligned_read, size, AccessKind::load)                              \
    FLASH_SIMT_RANGE_CALLBACK(unaligned_write, size, AccessKind::store)                            \
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

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

void __tsan_read_range(void* address, unsigned long size) {
    note_range(address, size, AccessKind::load, __builtin_return_address(0));
}
void __tsan_write_range(void* address, unsigned long size) {
    note_range(address, size, AccessKind::store, __builtin_return_address(0));
}

/// At the beginning of each piece of code between branches, of a kernel compiled with
/// -fsanitize-coverage=trace-pc.
void __sanitizer_cov_trace_pc() {
    if (active_observers != nullptr) {
        Caller().tells(&Observer::visit,
                       LocationId::of_code(__builtin_return_address(0), load_base));
    }
}

// language/memory_functions.hpp puts the first of each pair in the place of the C library's;
// clang++ calls the second.
#define FLASH_SIMT_MEMORY_CALLBACKS(name, Parameters, arguments, NOTE_READ)                        \
    void* flash_simt_##name Parameters noexcept {                                                  \
        NOTE_READ                                                                                  \
        note_range(to, bytes, AccessKind::store, __builtin_return_address(0));                     \
        return std::name arguments;                                                                \
    }                                                                                              \
    void* __tsan_##name Parameters noexcept {                                                      \
        NOTE_READ                                                                                  \
        note_range(to, bytes, AccessKind::store, __builtin_return_address(0));                     \
        return std::name arguments;                                                                \
    }
#define FLASH_SIMT_READS note_range(from, bytes, AccessKind::load, __builtin_return_address(0));
FLASH_SIMT_MEMORY_CALLBACKS(memcpy, (void* to, const void* from, size_t bytes), (to, from, bytes),
                            FLASH_SIMT_READS)
FLASH_SIMT_MEMORY_CALLBACKS(memmove, (void* to, const void* from, size_t bytes), (to, from, bytes),
                            FLASH_SIMT_READS)
FLASH_SIMT_MEMORY_CALLBACKS(memset, (void* to, int byte, size_t bytes), (to, byte, bytes), )

void __tsan_init() { start_watching(); }
void __tsan_func_entry(void* caller) {
    if (active_observers != nullptr) {
        enter_function(caller, __builtin_return_address(0));
    }
}
void __tsan_func_exit() {
    if (active_observers != nullptr) {
        leave_function();
    }
}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
}
