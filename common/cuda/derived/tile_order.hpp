// The order that `block_order` derives, for the rungs after it: which tile of Q comes first, and
// which last.
#pragma once

#include <algorithm>

#include "common/attention.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/sizes.hpp"

namespace flash {

/// The tiles of Q of all heads, `Tr` per head, numbered wave by wave. A wave is `wave_heads` heads,
/// whose K and V the L2 cache can hold; in a wave the last tile of each head comes first, because
/// with a causal mask it is the longest. Without a mask all are equally long, and a wave of one
/// head makes the most of L2.
struct TileOrder {
    int heads, wave_heads, Tr;
    int blocks() const { return heads * Tr; } // one per tile
};

/// The order for one block per tile: with a mask in waves that fill the GPU's `places` twice,
/// without one head by head. `heads` are those of a batch entry, `tiles` those of a head. Throws
/// Error if there are more blocks than an int can count.
inline TileOrder order_in_waves(const Problem& p, int64_t heads, int64_t tiles, int places) {
    as_int(p.batch * heads * tiles, "batch x heads x tiles");
    const int all = static_cast<int>(p.batch * heads), Tr = static_cast<int>(tiles);
    return {all, p.causal ? std::clamp(2 * places / Tr, 1, all) : 1, Tr};
}

struct Tile {
    int head;
    int i; // the tile is rows i Br to i Br + Br - 1 of Q
};

/// Where tile number `number` is, 0 to heads * Tr - 1.
__device__ inline Tile tile_of(unsigned number, TileOrder order) {
    const int wave = number / (order.wave_heads * order.Tr);
    const int first_head = wave * order.wave_heads;
    // the last wave may have fewer heads
    const int wave_size = min(order.wave_heads, order.heads - first_head);
    const int in_wave = number - first_head * order.Tr;
    return {first_head + in_wave % wave_size, order.Tr - 1 - in_wave / wave_size};
}

} // namespace flash
