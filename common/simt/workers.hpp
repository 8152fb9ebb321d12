// The OS threads that run blocks.
#pragma once

#include <cstdint>
#include <functional>

#include "common/simt/block.hpp"

namespace flash::simt {

/// Calls `work` on as many workers as options and the number of blocks allow, each with its own Block,
/// and returns when all have returned. Workers and their blocks live until the program ends.
void run_on_workers(uint64_t blocks, const std::function<void(Block&)>& work);

} // namespace flash::simt
