// Twin of the mbarrier wrappers in common/cuda/mbarrier.hpp.
#pragma once

#include <cstdint>

#include "common/simt/site.hpp"

namespace flash {
namespace simt {

void init_mbarrier(uint64_t* barrier, int arrivals, Site site);
void arrive_at_mbarrier(uint64_t* barrier, Site site);
void arrive_after_copies(uint64_t* barrier, Site site);
void wait_at_mbarrier(uint64_t* barrier, int parity, Site site);

} // namespace simt

inline void mbarrier_init(uint64_t* barrier, int arrivals, simt::Site site = simt::Site::here()) {
    simt::init_mbarrier(barrier, arrivals, site);
}
inline void mbarrier_arrive(uint64_t* barrier, simt::Site site = simt::Site::here()) {
    simt::arrive_at_mbarrier(barrier, site);
}
inline void cp_async_mbarrier_arrive(uint64_t* barrier, simt::Site site = simt::Site::here()) {
    simt::arrive_after_copies(barrier, site);
}
inline void mbarrier_wait(uint64_t* barrier, int parity, simt::Site site = simt::Site::here()) {
    simt::wait_at_mbarrier(barrier, parity, site);
}

} // namespace flash
