// CUDA's header of this name, for the SIMT backend.
#pragma once

#include "common/simt/instructions/cp_async.hpp"
#include "cuda_runtime.h"

/// Copies 4, 8 or 16 bytes to shared memory; the last `zeros` of them become zeros.
inline void __pipeline_memcpy_async(
    void* shared, const void* global, size_t bytes, size_t zeros = 0,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    flash::simt::copy_async(shared, global, bytes, bytes - zeros, location);
}
inline void
__pipeline_commit(flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    flash::simt::cp_async_commit(location);
}
inline void
__pipeline_wait_prior(size_t in_flight,
                      flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    flash::simt::wait_async_copies(static_cast<unsigned>(in_flight), location);
}
