// Twin of the cp.async wrappers in common/cuda/cp_async.hpp.
#pragma once

#include "common/simt/async_copy.hpp"

namespace flash {

/// Starts a copy of 16 (8, 4) bytes from global to shared memory; fills with zeros when not `valid`, and then does not
/// touch global memory. Both addresses are multiples of the size.
inline void cp_async_16(void* shared, const void* global, bool valid = true, simt::Site site = simt::Site::here()) {
    simt::start_async_copy(shared, global, 16, valid, site);
}
inline void cp_async_8(void* shared, const void* global, bool valid = true, simt::Site site = simt::Site::here()) {
    simt::start_async_copy(shared, global, 8, valid, site);
}
inline void cp_async_4(void* shared, const void* global, bool valid = true, simt::Site site = simt::Site::here()) {
    simt::start_async_copy(shared, global, 4, valid, site);
}

/// Closes a group: the copies that this thread started since the last commit.
inline void cp_async_commit(simt::Site site = simt::Site::here()) { simt::commit_async_copies(site); }

/// Waits until at most `InFlight` of this thread's groups are still under way.
template <int InFlight> inline void cp_async_wait(simt::Site site = simt::Site::here()) {
    simt::wait_async_copies(InFlight, site);
}

/// Waits for all copies of this thread, committed or not.
inline void cp_async_wait_all(simt::Site site = simt::Site::here()) { simt::wait_all_async_copies(site); }

} // namespace flash
