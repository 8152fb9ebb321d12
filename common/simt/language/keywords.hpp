// CUDA's keywords and built-in variables, as g++ and clang++ understand them.
#pragma once

#include <type_traits>

#include "common/simt/machine/dim3.hpp"

// Tags become part of the names in the symbol table: they tell kernels from other functions there,
// and the device's variables from the host's. Arrays of floats may be read as float4, as nvcc's
// can, and the gap behind one makes an overrun visible. `inline` gives a kernel's __shared__
// variables external linkage, as g++'s instrumentation wants it.
#define __global__ inline __attribute__((abi_tag("kernel"), used))
#define __device__ __attribute__((abi_tag("device"), aligned(16)))
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

// One copy an OS thread, and a block runs on one OS thread. In a function, thread_local means
// static, too.
#define __shared__ __attribute__((abi_tag("shared"), aligned(16))) thread_local
#define __constant__ __attribute__((abi_tag("constant"), aligned(16)))
// Of two tags g++ keeps the last, and __device__ may stand behind: the section tells, too.
#define __managed__ __attribute__((abi_tag("managed"), aligned(16), section("flash_managed")))

#define threadIdx (::flash::simt::unpack_index(::flash::simt::thread_index()))
#define blockIdx (::flash::simt::unpack_index(::flash::simt::block_index()))
#define blockDim (dim3(::flash::simt::unpack_index(::flash::simt::block_size())))
#define gridDim (dim3(::flash::simt::unpack_index(::flash::simt::grid_size())))

inline constexpr int warpSize = 32;

namespace flash::simt {

// Functions of the runtime, which is compiled without instrumentation: as plain variables they
// would look like memory traffic of the kernel. `const` because a CUDA thread sees the same value
// as long as it lives. Packed because g++ asks again and again for a struct, and once for a number.
[[gnu::const]] unsigned long long thread_index() noexcept;
[[gnu::const]] unsigned long long block_index() noexcept;
[[gnu::const]] unsigned long long block_size() noexcept;
[[gnu::const]] unsigned long long grid_size() noexcept;

/// Whether a thread of a kernel asks, and not the host.
[[gnu::const]] bool runs_on_device() noexcept;
constexpr bool on_device() { return !std::is_constant_evaluated() && runs_on_device(); }

/// x of 32 bits, y and z of 16: as large as CUDA lets each of them be.
constexpr unsigned long long pack_index(uint3 v) {
    return v.x | static_cast<unsigned long long>(v.y) << 32 |
           static_cast<unsigned long long>(v.z) << 48;
}
/// g++ does not learn that a thread finds the same each time. It would take a word of shared memory
/// that only its own thread uses for a local variable.
[[gnu::always_inline]] inline uint3 unpack_index(unsigned long long packed) {
    asm("" : "+r"(packed));
    return {static_cast<unsigned>(packed), static_cast<unsigned>(packed >> 32 & 0xffff),
            static_cast<unsigned>(packed >> 48)};
}

} // namespace flash::simt
