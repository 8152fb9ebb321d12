// The host's memory: how much a program may still ask for.
#pragma once

#include <cstddef>
#include <filesystem>

namespace flash {

/// Bytes that this process may still allocate: what the kernel calls available,
/// or what the control group (a container's limit) leaves, whichever is smaller.
/// Both are read below `root`; tests put other figures there.
size_t available_host_memory(const std::filesystem::path& root = "/");

} // namespace flash
