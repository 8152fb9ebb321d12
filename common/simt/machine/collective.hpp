// What the threads of a warp or a block do together: the last one to arrive does the work for all.
#pragma once

#include <array>
#include <cstdint>

#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

constexpr uint32_t full_mask = 0xffffffffu;

/// One operand of each lane.
using Operands = std::array<void*, 32>;
using Combine = void (*)(const Operands& operands, uint32_t lanes);

/// What a meeting of lanes counts as.
enum class CollectiveKind : uint8_t { sync, collective, mma, ldmatrix };

/// One operand of each thread of a warpgroup; the last one to arrive combines them for all.
using WarpgroupOperands = std::array<void*, 128>;
using WarpgroupCombine = void (*)(unsigned first_thread, const WarpgroupOperands& operands,
                                  SourceLocation location);

struct WaitingThread {
    unsigned thread;
    SourceLocation location;
};

} // namespace flash::simt
