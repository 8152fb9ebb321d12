#include "common/simt/instructions/stmatrix.hpp"

#include <cstring>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

struct Lane {
    const uint32_t* registers; // one for each tile
    uint4& line;
};

/// Lane l holds elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each tile.
template <bool Transposed> void exchange(const Operands& lanes, uint32_t) {
    for (size_t m = 0; m < 4; ++m) {
        uint16_t lines[8][8];
        for (size_t lane = 0; lane < 32; ++lane) {
            const size_t g = lane / 4;
            const size_t t = 2 * (lane % 4);
            const uint32_t both = static_cast<const Lane*>(lanes[lane])->registers[m];
            (Transposed ? lines[t][g] : lines[g][t]) = static_cast<uint16_t>(both);
            (Transposed ? lines[t + 1][g] : lines[g][t + 1]) = static_cast<uint16_t>(both >> 16);
        }
        for (size_t i = 0; i < 8; ++i) {
            std::memcpy(&static_cast<Lane*>(lanes[8 * m + i])->line, lines[i], 16);
        }
    }
}

} // namespace

void line_of_tiles(uint4& line, const uint32_t (&r)[4], bool transposed, SourceLocation location) {
    Lane own{r, line};
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::collective, "stmatrix_x4", location, full_mask, &own,
                               transposed ? exchange<true> : exchange<false>);
}

} // namespace flash::simt
