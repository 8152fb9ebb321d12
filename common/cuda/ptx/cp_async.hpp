// cp.async: copies from global to shared memory that go on while the thread computes. (PTX ISA,
// "cp.async".)
//
// A thread starts copies, closes a group of them with a commit, and waits until at most a given
// number of its groups are still under way. A wait covers only the thread's own copies. Other
// threads may read them after a barrier that follows the wait.
#pragma once

#include <cstdint>

#ifdef __NVCC__

namespace flash {

/// Starts a copy of 16 bytes that bypasses L1. Where `valid` is false, it writes zeros and does not
/// touch global memory. Both addresses are multiples of 16.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

/// Closes a group: the copies that this thread started since the last commit. A group may be empty.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `InFlight` of this thread's groups are still under way.
template <int InFlight> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(InFlight) : "memory");
}

} // namespace flash

#else
#include "common/simt/instructions/cp_async.hpp"
#endif
