#include "common/simt/instructions/plain_atomics.hpp"

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

void note_atomic(const uint16_t* address, SourceLocation location) {
    if (active_observers != nullptr) {
        Caller().tells(&Observer::access, {reinterpret_cast<const char*>(address), sizeof *address,
                                           AccessKind::atomic, LocationId::of(location)});
    }
}

bool replace(uint16_t* address, uint16_t& expected, uint16_t desired) {
    return __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

} // namespace

uint16_t atomic_add_narrow(uint16_t* address, uint16_t bits, uint16_t (*sum)(uint16_t, uint16_t),
                           SourceLocation location) {
    note_atomic(address, location);
    uint16_t before = __atomic_load_n(address, __ATOMIC_SEQ_CST);
    while (!replace(address, before, sum(before, bits))) {
    }
    return before;
}

} // namespace flash::simt
