// Twin of common/cuda/warpgroup.hpp.
#pragma once

#include "common/simt/machine/warpgroups.hpp"

namespace flash {

inline void named_barrier_sync(int id, int threads, simt::Site site = simt::Site::here()) {
    simt::wait_at_named_barrier(id, threads, site);
}
inline void named_barrier_arrive(int id, int threads, simt::Site site = simt::Site::here()) {
    simt::arrive_at_named_barrier(id, threads, site);
}
template <int registers> inline void give_registers(simt::Site site = simt::Site::here()) {
    simt::give_registers(registers, site);
}
template <int registers> inline void take_registers(simt::Site site = simt::Site::here()) {
    simt::take_registers(registers, site);
}

} // namespace flash
