// Twin of common/cuda/semaphore.hpp.
#pragma once

#include "common/simt/machine/semaphores.hpp"

namespace flash {

using simt::semaphore_add;
using simt::semaphore_wait;

} // namespace flash
