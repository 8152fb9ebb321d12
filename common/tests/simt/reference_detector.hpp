// A detector that is slow and plain, to hold the other one to. It remembers every access to every
// byte, and of each thread a whole map of whom it knows to have come how far. It forgets nothing,
// puts nothing together and looks nothing up; what it knows of order is what docs/simt.md says.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/simt/instructions/cp_async.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/observer.hpp"

namespace simt_test {

namespace simt = flash::simt;

/// Who does something: a thread of a block, or what goes on beside the threads. What an actor does
/// is numbered from 1.
struct Actor {
    enum Kind : uint8_t {
        thread, // its accesses
        copies, // cp.async that a thread has started
        stores, // groups of a thread's bulk stores
        phases, // of an mbarrier: a load is over with one
    };
    unsigned block = 0;
    Kind kind = thread;
    uint64_t which = 0; // number of the thread, or address of the mbarrier
    auto operator<=>(const Actor&) const = default;
};

/// How far each actor has come, as far as somebody knows.
using Known = std::map<Actor, uint64_t>;

/// What a thread knows, and what it tells those that it meets.
struct Knowledge {
    Known done;            // comes before whatever the thread does from here on
    Known fenced;          // of that, what TMA sees: a fence_proxy_async() came after it
    Known to_block;        // what strong writes of the thread hand on: to its block,
    Known to_device;       // and to all; what was done at its last fence of such a scope
    Known found_of_block;  // what strong reads have found, before the fence that makes it `done`:
    Known found_of_device; // handed on within the block, and to all
    void learn(const Knowledge& more);
};

/// An access of one byte.
struct ByteAccess {
    Actor who;
    std::shared_ptr<const uint64_t> number; // of what that actor does; shared with a load's landing
    simt::AccessKind kind;
    simt::Scope scope;
    unsigned thread; // that made it, or started it
    simt::LocationId origin;
};

/// An access after which something is wrong.
struct Incident {
    unsigned block = 0, thread = 0;
    simt::LocationId origin;
    long offset = -1; // of its first byte in dynamic shared or in global memory
    std::vector<ByteAccess> races_with{};
    bool lacks_fence = false;   // TMA does not see what a thread has written
    bool only_doubtful = false; // a fence of the reader is all that is missing: a warning
    // It is told later, if at all, and perhaps another one is told first: a plain load of what
    // others update atomically waits for an atomicCAS, which would check the value, and of two
    // writes it must be seen whether they write the same.
    bool is_told_later = false;
};

/// What has happened in a launch. Its blocks tell it one at a time.
class ReferenceDetector {
  public:
    const std::vector<Incident>& incidents() const { return incidents_; }

    /// Who tells it of a block.
    std::unique_ptr<simt::Observer> observer(simt::Block& block);

  private:
    friend class ReferenceObserver;

    /// An address. Each block has shared memory of its own; global memory is that of block `all`.
    using Place = std::pair<unsigned, const char*>;
    static constexpr unsigned all = ~0u;

    /// What was handed on at a place by strong writes, up to the last one.
    struct Signal {
        unsigned block = 0; // whose thread wrote last
        simt::Scope scope = simt::Scope::weak;
        Known to_all;
        std::map<unsigned, Known> to_block; // by the block within which it was handed on
    };

    struct Barrier { // an mbarrier or a named one
        Knowledge gathered, handed_on;
        uint64_t phases = 0; // that have ended
    };

    std::map<Place, std::vector<ByteAccess>> bytes_;
    std::map<Actor, Knowledge> threads_;
    std::map<Actor, uint64_t> accesses_; // of each thread
    std::map<Place, Signal> signals_;
    std::set<Actor> have_acquired_; // threads that came to a fence after they had found a signal
    std::map<std::pair<unsigned, const void*>, Barrier> barriers_;
    std::map<std::pair<unsigned, uint32_t>, std::shared_ptr<uint64_t>> landings_; // of loads
    std::vector<Incident> incidents_;
};

} // namespace simt_test
