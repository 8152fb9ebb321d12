// Where observers come from. A program with instrumented kernels brings one along; another
// has none.
#pragma once

#include "common/simt/machine/grid.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {

class Block;

class ObserverFactory {
  public:
    virtual ~ObserverFactory() = default;

    /// A launch begins.
    virtual void begin_launch() = 0;

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
