// Twin of common/cuda/cp_async.hpp.
#pragma once

#include "common/simt/machine/async_copies.hpp"

namespace flash {

using simt::cp_async_16;
using simt::cp_async_commit;
template <int InFlight> inline void cp_async_wait() { simt::wait_async_copies(InFlight); }

} // namespace flash
