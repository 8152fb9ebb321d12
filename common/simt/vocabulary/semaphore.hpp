// Twin of common/cuda/semaphore.hpp.
#pragma once

#include "common/simt/machine/semaphores.hpp"

namespace flash {

inline void semaphore_wait(const unsigned* semaphore, unsigned value, simt::Site site = simt::Site::here()) {
    simt::wait_for_semaphore(semaphore, value, site);
}
inline void semaphore_add(unsigned* semaphore, simt::Site site = simt::Site::here()) {
    simt::add_to_semaphore(semaphore, site);
}

} // namespace flash
