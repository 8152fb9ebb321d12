// Running all blocks of a launch.
#pragma once

#include <cstddef>

#include "common/simt/machine/dim3.hpp"
#include "common/simt/machine/site.hpp"

namespace flash::simt {

/// A launch with its kernel's type erased: `call(context)` runs the kernel once, as the current CUDA thread.
struct Launch {
    const void* kernel; // its address, for its name
    dim3 grid, block;
    size_t smem_bytes; // dynamic shared memory
    Site site;
    void (*call)(const void* context);
    const void* context;
    size_t context_bytes;
};

/// Runs all blocks and returns when they have ended. Throws Fault when the launch or the kernel is wrong.
void run(const Launch& launch);

} // namespace flash::simt
