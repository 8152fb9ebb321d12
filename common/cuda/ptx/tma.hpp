// TMA, the copy engine of Hopper: one thread asks for a whole box of a tensor and goes on. (PTX
// ISA, "cp.async.bulk.tensor".)
//
// A load tells an mbarrier how many bytes have landed, and a thread that waits at this barrier sees
// the box. For stores, the thread that started them waits, in groups, as with cp.async.
//
// The engine is not a thread. It reaches shared memory by another path than the loads and stores of
// threads do (the "async proxy", which wgmma uses as well). So before the engine reads what a
// thread has written, that thread has to call fence_proxy_async().
#pragma once

#include <cstdint>

#include "common/cuda/launch/tensor_map.hpp"

#ifdef __NVCC__

namespace flash {

/// Starts to copy a box to shared memory, to a multiple of 1024 bytes. `at` has the coordinates of
/// the box's first element, innermost first, in elements. They may lie outside of the tensor, and
/// the first is a multiple of 16 bytes. All bytes of the box count on `barrier`, also the zeros
/// that stand for what is beyond the tensor. One thread calls it.
template <int rank>
__device__ __forceinline__ void tma_load(void* smem, const TensorMap& map, const int (&at)[rank],
                                         uint64_t* barrier) {
    static_assert(rank >= 2 && rank <= 5);
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const auto bar = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
    if constexpr (rank == 2) {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
            "l"(&map), "r"(bar), "r"(at[0]), "r"(at[1])
            : "memory");
    } else if constexpr (rank == 3) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
            "l"(&map), "r"(bar), "r"(at[0]), "r"(at[1]), "r"(at[2])
            : "memory");
    } else if constexpr (rank == 4) {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
            "l"(&map), "r"(bar), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
            "l"(&map), "r"(bar), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
            : "memory");
    }
}

/// Starts to copy `bytes` contiguous bytes, without a tensor map. Addresses and `bytes` are
/// multiples of 16. The bytes count on `barrier`. One thread calls it.
__device__ __forceinline__ void bulk_load(void* smem, const void* global, int bytes,
                                          uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(static_cast<uint32_t>(__cvta_generic_to_shared(smem))),
        "l"(global), "r"(bytes), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
        : "memory");
}

/// Starts to copy a box from shared memory to the tensor. The box may end beyond the tensor, and
/// what is beyond is not written. But no coordinate is negative, and the first is a multiple of 16
/// bytes, as the tensor's rows are: their last 16 bytes are written whole. One thread calls it, and
/// closes the group with bulk_commit().
template <int rank>
__device__ __forceinline__ void tma_store(const TensorMap& map, const int (&at)[rank],
                                          const void* smem) {
    static_assert(rank >= 2 && rank <= 5);
    const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    if constexpr (rank == 2) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::
                "l"(&map),
            "r"(from), "r"(at[0]), "r"(at[1])
            : "memory");
    } else if constexpr (rank == 3) {
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, "
                     "%4}], [%1];" ::"l"(&map),
                     "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2])
                     : "memory");
    } else if constexpr (rank == 4) {
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, "
                     "%5}], [%1];" ::"l"(&map),
                     "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, "
                     "%5, %6}], [%1];" ::"l"(&map),
                     "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                     : "memory");
    }
}

/// Starts to copy `bytes` contiguous bytes from shared memory to global memory. Both addresses and
/// `bytes` are multiples of 16. One thread calls it, and closes the group with bulk_commit().
__device__ __forceinline__ void bulk_store(void* global, const void* smem, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(static_cast<uint32_t>(__cvta_generic_to_shared(smem))), "r"(bytes)
                 : "memory");
}

/// Starts to add `bytes` bytes of floats in shared memory to as many in global memory. Each
/// addition is atomic. Both addresses and `bytes` are multiples of 16. One thread calls it, and
/// closes the group with bulk_commit().
__device__ __forceinline__ void bulk_reduce_add(float* global, const float* smem, int bytes) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
        "r"(static_cast<uint32_t>(__cvta_generic_to_shared(smem))), "r"(bytes)
        : "memory");
}

/// Closes a group: the stores and additions that this thread has started since the last commit.
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `InFlight` of this thread's groups still read shared memory. What the other
/// groups have read may then be written again.
template <int InFlight> __device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(InFlight) : "memory");
}

/// Waits until at most `InFlight` of this thread's groups are unfinished. The others have then
/// written global memory.
template <int InFlight> __device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(InFlight) : "memory");
}

/// From here on TMA and wgmma see what this thread has written to shared memory, and what others
/// had written before a barrier that it has passed. Each thread that wrote calls it, before the
/// barrier after which TMA or wgmma is started; or each thread that starts them, behind it.
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

} // namespace flash

#else
#include "common/simt/instructions/tma.hpp"
#endif
