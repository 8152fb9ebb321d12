// What a rung can be asked for: its types, its head dims, and what fits in memory.
#pragma once

#include <cstddef>

#include "common/harness/program/device_run.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {

/// Throws Error, listing what is supported, when the rung has no function for `type` or no such
/// head dim, or knows no window, sink or head dim of
/// V's own.
void require_supported(const Rung& rung, const Problem& problem, DType type);

/// Throws Error when the call's inputs and outputs (each with two margins of `margin` bytes) and
/// its workspace exceed what its backend has left. `host_bytes` more are counted when the backend
/// is the host itself.
void require_memory(const Call& call, size_t margin, double host_bytes = 0);

} // namespace flash
