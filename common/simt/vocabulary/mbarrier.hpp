// Twin of common/cuda/mbarrier.hpp.
#pragma once

#include "common/simt/machine/bulk_copies.hpp"
#include "common/simt/machine/mbarriers.hpp"
#include "common/simt/vocabulary/keywords.hpp"

namespace flash {

inline void mbarrier_init(uint64_t* barrier, int arrivals, simt::Site site = simt::Site::here()) {
    simt::init_mbarrier(barrier, arrivals, site);
}
inline void mbarrier_arrive(uint64_t* barrier, simt::Site site = simt::Site::here()) {
    simt::arrive_at_mbarrier(barrier, site);
}
inline void mbarrier_expect_tx(uint64_t* barrier, int bytes, simt::Site site = simt::Site::here()) {
    simt::expect_bytes(barrier, bytes, site);
}
inline void fence_mbarrier_init() { simt::fence_mbarrier_init(); }
inline void cp_async_mbarrier_arrive(uint64_t* barrier, simt::Site site = simt::Site::here()) {
    simt::arrive_after_copies(barrier, site);
}
inline void mbarrier_wait(uint64_t* barrier, int parity, simt::Site site = simt::Site::here()) {
    simt::wait_at_mbarrier(barrier, parity, site);
}

} // namespace flash
