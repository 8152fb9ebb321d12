// Running all blocks of a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "common/simt/machine/dim3.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

struct Kernel;

/// A launch with its kernel's type erased: `call(context)` runs the kernel once, as the current
/// CUDA thread.
struct Launch {
    const void* kernel; // its address, for its name
    dim3 grid, block;
    size_t smem_bytes; // dynamic shared memory
    SourceLocation location;
    void (*call)(const void* context);
    const void* context;
    size_t context_bytes;
    bool for_hopper = false;   // its blocks may have 227 KiB of shared memory
    bool raises_limit = false; // on dynamic shared memory by itself, as flash::launch does
};

/// The most shared memory that a block may have, in bytes.
size_t shared_memory_limit(bool for_hopper);

/// How much dynamic shared memory a launch of this kernel may ask for: what is left of 48 KiB by
/// its __shared__ variables, until cudaFuncSetAttribute has said another number.
size_t dynamic_shared_limit(const Kernel& kernel);
void set_dynamic_shared_limit(const Kernel& kernel, size_t bytes);

// The emulated GPU. It has few SMs, so that small problems have several waves.
inline constexpr int sms = 4;
inline constexpr int threads_per_sm = 2048;
inline constexpr int blocks_per_sm = 32;

/// How many blocks of a launch the emulated GPU runs at the same time. On each of its SMs a block
/// may have what FLASH_SIMT_SHARED_KIB says. Registers do not count.
int resident_blocks(bool for_hopper, int threads, size_t smem_bytes);
uint64_t resident_blocks(const Launch& launch, const Kernel& kernel);

/// Runs all blocks and returns when they have ended, and after them those that they have launched,
/// in the same order. Called by a kernel, it returns at once. Throws Fault when a launch or a
/// kernel is wrong.
void run(const Launch& launch);

/// While it is held no launch is at work: host threads may copy while others launch.
std::unique_lock<std::mutex> take_turn();

} // namespace flash::simt
