// Twin of common/cuda/warpgroup.hpp.
#pragma once

#include "common/simt/machine/warpgroups.hpp"

namespace flash {

using simt::named_barrier_arrive;
using simt::named_barrier_sync;
template <int registers> inline void give_registers(simt::Site site = simt::Site::here()) {
    simt::set_registers(true, registers, site);
}
template <int registers> inline void take_registers(simt::Site site = simt::Site::here()) {
    simt::set_registers(false, registers, site);
}

} // namespace flash
