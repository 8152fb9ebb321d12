// CUDA's header of this name, for the SIMT backend: cp.async as functions.
#pragma once

#include "common/simt/instructions/cp_async.hpp"
#include "cuda_runtime.h"

/// 4, 8 or 16 bytes, of which the last `zeros` become zero: none or all of them.
inline void __pipeline_memcpy_async(
    void* shared, const void* global, size_t bytes, size_t zeros = 0,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    flash::simt::start_async_copy(shared, global, static_cast<unsigned>(bytes),
                                  static_cast<unsigned>(zeros), location);
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
