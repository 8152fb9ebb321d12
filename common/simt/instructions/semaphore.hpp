// Twin of common/cuda/ptx/semaphore.hpp: counters in global memory at which blocks wait for each
// other.
#pragma once

#include "common/simt/machine/source_location.hpp"

namespace flash {
namespace simt {

void semaphore_wait(const unsigned* semaphore, unsigned value,
                    SourceLocation location = SourceLocation::here());
void semaphore_add(unsigned* semaphore, SourceLocation location = SourceLocation::here());

} // namespace simt

using simt::semaphore_add;
using simt::semaphore_wait;

} // namespace flash
