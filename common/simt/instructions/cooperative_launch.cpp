#include "common/simt/instructions/cooperative_launch.hpp"

#include "common/simt/instructions/semaphore.hpp"
#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

constinit unsigned* blocks_that_came = nullptr; // to all meetings of a launch; in device memory

/// How often a block has met the others.
class Meetings final : public InstructionState {
  public:
    unsigned count = 0;
    void begin_block(unsigned) override { count = 0; }
};

} // namespace

MeetingOfBlocks::MeetingOfBlocks() {
    void* const counter = allocate_device_memory(sizeof(unsigned), "the meeting of all blocks");
    cudaMemset(counter, 0, sizeof(unsigned));
    blocks_that_came = static_cast<unsigned*>(counter);
}
MeetingOfBlocks::~MeetingOfBlocks() {
    free_device_memory(blocks_that_came);
    blocks_that_came = nullptr;
}

bool blocks_can_meet() { return blocks_that_came != nullptr; }

void meet_blocks(SourceLocation location) {
    const Caller caller;
    Block& block = caller.block;
    if (!blocks_can_meet()) {
        block.refuse(FaultKind::launch, "the blocks of this launch cannot meet", "grid.sync",
                     location, "launch the kernel by cudaLaunchCooperativeKernel");
    }
    block.barrier("grid.sync", location, false);
    if (caller.thread.number == 0) {
        const auto blocks = static_cast<unsigned>(volume(block.launch().grid));
        semaphore_add(blocks_that_came, location);
        semaphore_wait(blocks_that_came, ++block.state<Meetings>().count * blocks, location);
    }
    block.barrier("grid.sync", location, false);
}

} // namespace flash::simt
