// Twin of common/cuda/ptx/semaphore.hpp: counters in global memory by which blocks wait for each
// other or find out who is last.
#pragma once

#include "common/simt/machine/source_location.hpp"

namespace flash {
namespace simt {

void semaphore_wait(const unsigned* semaphore, unsigned value,
                    SourceLocation location = SourceLocation::here());
void semaphore_add(unsigned* semaphore, SourceLocation location = SourceLocation::here());
unsigned semaphore_fetch_add(unsigned* semaphore, SourceLocation location = SourceLocation::here());

} // namespace simt

using simt::semaphore_add;
using simt::semaphore_fetch_add;
using simt::semaphore_wait;

} // namespace flash
