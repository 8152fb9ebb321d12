// What the threads of a warp or a block do together: the last one to arrive does the work for all.
#pragma once

#include <array>
#include <cstdint>

#include "common/simt/machine/site.hpp"

namespace flash::simt {

constexpr uint32_t full_mask = 0xffffffffu;

/// One operand of each lane.
using Operands = std::array<void*, 32>;
using Combine = void (*)(const Operands& operands, uint32_t lanes);

/// What a meeting of lanes counts as.
enum class Meeting : uint8_t { sync, collective, mma, ldmatrix };

/// The lanes of `mask` meet. `operation` names it in messages.
void warp_collective(Meeting meeting, const char* operation, uint32_t mask, void* operand, Combine combine, Site site);

/// All threads of the block meet; returns for how many of them `predicate` holds.
int block_barrier(const char* operation, bool predicate, Site site);

} // namespace flash::simt
