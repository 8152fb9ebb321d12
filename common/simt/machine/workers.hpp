// The OS threads that run blocks.
#pragma once

#include <cstdint>
#include <functional>

#include "common/simt/machine/block.hpp"

namespace flash::simt {

/// Calls `work` on as many workers as options, the number of blocks and the memory for their
/// threads allow, each with its own Block, and returns when all have returned. Workers and their
/// blocks live until the program ends. Throws Error when there is memory for none, and what `work`
/// has thrown.
void run_on_workers(uint64_t blocks, unsigned threads, const std::function<void(Block&)>& work);

} // namespace flash::simt
