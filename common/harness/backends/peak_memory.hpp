// How much memory a piece of work needs, measured.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

namespace flash {

/// The most resident memory that this process had during `work`, in bytes beyond what it had
/// before.
/// Nothing where the system does not tell (Linux does, through /proc/self/clear_refs). `work` is
/// called in any case. Call `work` once before, so that threads and libraries have been set up and
/// are not counted.
std::optional<size_t> peak_memory_of(const std::function<void()>& work);

} // namespace flash
