// What an access is, as the detector remembers it.
#pragma once

#include <bit>
#include <cstdint>

#include "common/simt/machine/location_id.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/observers/signals.hpp"

namespace flash::simt {

/// What is remembered of an access, or of those that several lanes of a warp made at the same
/// clock.
struct Access {
    uint32_t block = 0;      // counted over all launches; 0: no access
    uint32_t epoch = 0;      // between two barriers of the block; counted over all blocks
    uint32_t origin = 0;     // where in the program: LocationId::number()
    uint32_t lanes = 0;      // that made it; with `engine` the number of the work
    uint32_t clock = 0;      // of their threads (clocks.hpp)
    uint32_t engine : 8 = 0; // made by an EngineWork, not by threads
    uint32_t warp : 8 = 0;
    uint32_t atomic : 8 = 0; // an atomic operation
    uint32_t scope : 8 = 0;  // Scope: weak, or that of an atomic operation or a volatile access

    uint32_t work() const { return lanes; }
    friend bool operator==(const Access&, const Access&) = default;
};

/// Whether they may meet without being a race: atomic operations and volatile accesses.
inline bool may_meet(const Access& a, const Access& b) {
    return include_each_other(Scope{static_cast<uint8_t>(a.scope)}, a.block,
                              Scope{static_cast<uint8_t>(b.scope)}, b.block);
}

/// Whether all who may meet `now` may meet `before` as well. Then `now` can stand for it: who races
/// with `before` later, and is not ordered, races with `now`.
inline bool stands_for(const Access& now, const Access& before) {
    return Scope{static_cast<uint8_t>(now.scope)} == Scope::weak ||
           (now.block == before.block && before.scope >= now.scope);
}

/// The thread that made it; of several lanes, the first.
inline unsigned thread_of(const Access& access) {
    return access.warp * 32u + static_cast<unsigned>(std::countr_zero(access.lanes));
}

/// Whether two accesses differ in their lanes alone.
inline bool alike(const Access& a, const Access& b) {
    return a.warp == b.warp && a.clock == b.clock && a.origin == b.origin && a.atomic == b.atomic &&
           a.scope == b.scope;
}

/// What cp.async, TMA or a warp's tensor core does beside the threads.
struct EngineWork {
    static constexpr uint32_t not_yet = ~uint32_t{0};
    enum Kind : uint8_t {
        // cp.async: to shared memory, where TMA and wgmma see it after a fence, like what its
        // thread writes
        copies,
        loads, // TMA to shared memory
        reads  // from shared memory
    };
    const char* operation = "";
    unsigned thread = 0; // that began it
    LocationId origin;
    uint32_t channel = 0;      // on which it ends,
    uint32_t number = not_yet; // and with which of its numbers
    Kind kind = reads;
};

} // namespace flash::simt
