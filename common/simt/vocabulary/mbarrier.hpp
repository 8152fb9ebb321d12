// Twin of common/cuda/mbarrier.hpp.
#pragma once

#include "common/simt/machine/mbarriers.hpp"
#include "common/simt/vocabulary/keywords.hpp"

namespace flash {

using simt::cp_async_mbarrier_arrive;
using simt::fence_mbarrier_init;
using simt::mbarrier_arrive;
using simt::mbarrier_expect_tx;
using simt::mbarrier_init;
using simt::mbarrier_wait;

} // namespace flash
