// Where observers come from. A program with instrumented kernels brings one along; another
// has none.
#pragma once

#include <cstdint>

#include "common/simt/machine/grid.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {

class Block;

/// How the blocks of a launch are watched.
enum class Watching : uint8_t {
    in_order, // one after the other
    apart,    // each worker watches its own, and knows nothing of others
    quickly   // so too, and a quick check looks at shared memory
};

class ObserverFactory {
  public:
    virtual ~ObserverFactory() = default;

    /// A launch begins.
    virtual void begin_launch(Watching how) = 0;

    /// Whether those whom options() ask for can look on like that.
    virtual bool can_watch_apart() const = 0;

    /// After such a launch: whether no block has written where one of another worker has been.
    virtual bool were_independent() const = 0;

    /// After a launch that was watched quickly: whether that was too quick.
    virtual bool was_in_doubt() const = 0;

    /// Those who look on at this block during the launch that options() describe. Called by each
    /// worker, on its OS thread, which is where they live.
    virtual Observers observers(Block& block) = 0;

    /// All blocks have ended, and none had a fault.
    virtual void end_launch(const Launch& launch, const Kernel& kernel) = 0;
};

extern constinit ObserverFactory* observer_factory;

/// Whether any kernel of this program was compiled with the calls that tell of its accesses.
inline bool is_instrumented() { return observer_factory != nullptr; }

/// Throws Error, with how to get it, unless that is so.
void require_instrumented();

} // namespace flash::simt
