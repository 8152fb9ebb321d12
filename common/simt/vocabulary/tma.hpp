// Twin of common/cuda/tma.hpp.
#pragma once

#include "common/simt/machine/bulk_copies.hpp"
#include "common/simt/vocabulary/tensor_map.hpp"

namespace flash {

template <int rank>
inline void tma_load(void* smem, const TensorMap& map, const int (&at)[rank], uint64_t* barrier,
                     simt::Site site = simt::Site::here()) {
    simt::tma_load(smem, map, rank, at, barrier, site);
}
template <int rank>
inline void tma_store(const TensorMap& map, const int (&at)[rank], const void* smem,
                      simt::Site site = simt::Site::here()) {
    simt::tma_store(map, rank, at, smem, site);
}
using simt::bulk_commit;
using simt::bulk_load;
using simt::bulk_reduce_add;
using simt::bulk_store;
using simt::fence_proxy_async;
template <int InFlight> inline void bulk_wait_read() { simt::wait_bulk_stores(InFlight, true); }
template <int InFlight> inline void bulk_wait() { simt::wait_bulk_stores(InFlight, false); }

} // namespace flash
