// Twin of common/cuda/tma.hpp.
#pragma once

#include "common/simt/machine/bulk_copies.hpp"
#include "common/simt/vocabulary/tensor_map.hpp"

namespace flash {

template <int rank>
inline void tma_load(void* smem, const TensorMap& map, const int (&at)[rank], uint64_t* barrier,
                     simt::Site site = simt::Site::here()) {
    simt::start_bulk_load(smem, map, rank, at, barrier, site);
}
inline void bulk_load(void* smem, const void* global, int bytes, uint64_t* barrier,
                      simt::Site site = simt::Site::here()) {
    simt::start_bulk_copy(smem, global, bytes, barrier, site);
}
template <int rank>
inline void tma_store(const TensorMap& map, const int (&at)[rank], const void* smem,
                      simt::Site site = simt::Site::here()) {
    simt::start_bulk_store(map, rank, at, smem, site);
}
inline void bulk_store(void* global, const void* smem, int bytes, simt::Site site = simt::Site::here()) {
    simt::start_bulk_run("bulk_store", global, smem, bytes, site);
}
inline void bulk_reduce_add(float* global, const float* smem, int bytes, simt::Site site = simt::Site::here()) {
    simt::start_bulk_run("bulk_reduce_add", global, smem, bytes, site);
}
inline void bulk_commit() { simt::commit_bulk_stores(); }
template <int InFlight> inline void bulk_wait_read() { simt::wait_bulk_stores(InFlight, true); }
template <int InFlight> inline void bulk_wait() { simt::wait_bulk_stores(InFlight, false); }
inline void fence_proxy_async() { simt::fence_proxy_async(); }
inline void prefetch_tensor_map(const TensorMap&) {} // there is no cache

} // namespace flash
