// Twin of common/cuda/cp_async.hpp.
#pragma once

#include "common/simt/machine/async_copies.hpp"

namespace flash {

inline void cp_async_16(void* shared, const void* global, bool valid = true, simt::Site site = simt::Site::here()) {
    simt::start_async_copy(shared, global, 16, valid, site);
}
inline void cp_async_commit() { simt::commit_async_copies(); }
template <int InFlight> inline void cp_async_wait() { simt::wait_async_copies(InFlight); }

} // namespace flash
