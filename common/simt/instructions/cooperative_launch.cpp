#include "common/simt/instructions/cooperative_launch.hpp"

#include <algorithm>
#include <span>
#include <string>

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

bool has_attribute(const cudaLaunchConfig_t& config, cudaLaunchAttributeID id) {
    return std::any_of(
        config.attrs, config.attrs + config.numAttrs,
        [&](const cudaLaunchAttribute& one) { return one.id == id && one.val.cooperative != 0; });
}

void require_no_clusters(const cudaLaunchConfig_t& config, SourceLocation location) {
    for (const cudaLaunchAttribute& one : std::span(config.attrs, config.numAttrs)) {
        const auto& cluster = one.val.clusterDim;
        if (one.id == cudaLaunchAttributeClusterDimension &&
            uint64_t{cluster.x} * cluster.y * cluster.z > 1) {
            throw Unsupported(std::string(location.file) + ":" + std::to_string(location.line) +
                              ": not supported: thread block clusters; use blocks");
        }
    }
}

} // namespace flash::simt
