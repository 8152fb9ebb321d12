// The OS threads that run blocks.
#pragma once

#include <cstdint>
#include <functional>

#include "common/simt/machine/block.hpp"

namespace flash::simt {

/// The blocks of a launch, as far as their workers must know them.
struct BlocksToRun {
    uint64_t count;
    unsigned threads;           // of each
    uint64_t resident;          // as many does the device hold at once
    std::function<bool()> more; // whether there are any that have not begun
    unsigned workers;           // at most, and others only in place of blocks that wait
};

/// Calls `work` on as many workers as options, the number of blocks and the memory for their
/// threads allow, each with its own Block, and returns when all have returned. More workers come
/// when blocks wait for each other. Workers and their blocks live until the program ends. Throws
/// Error when there is memory for none, and what `work` has thrown.
void run_on_workers(const BlocksToRun& blocks, const std::function<void(Block&)>& work);

} // namespace flash::simt
