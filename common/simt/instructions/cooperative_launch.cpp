#include "common/simt/instructions/cooperative_launch.hpp"

#include "common/simt/instructions/collectives.hpp"
#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

constinit bool can_meet = false;

} // namespace

MeetingOfBlocks::MeetingOfBlocks() { can_meet = true; }
MeetingOfBlocks::~MeetingOfBlocks() { can_meet = false; }

bool blocks_can_meet() { return can_meet; }

void meet_blocks(SourceLocation location) {
    if (!can_meet) {
        const Caller caller;
        caller.block.refuse(FaultKind::launch, "the blocks of this launch cannot meet", "grid.sync",
                            location, "launch the kernel by cudaLaunchCooperativeKernel");
    }
    sync_grid(location);
}

} // namespace flash::simt
