#include "common/simt/instructions/ldmatrix.hpp"

#include <array>
#include <cstring>
#include <span>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

struct Rows {
    uint32_t* registers;
    size_t tiles; // 1, 2 or 4; each has the rows of 8 lanes
    MatrixRow row;
    SourceLocation location;
};

/// Without transposition lane l receives elements 2 (l % 4), 2 (l % 4) + 1 of row l / 4 of each
/// matrix; transposed, the same of column l / 4.
template <bool Transposed> void load(const Operands& lanes, uint32_t) {
    const auto lane_rows = [&](size_t lane) -> const Rows& {
        return *static_cast<const Rows*>(lanes[lane]);
    };
    const size_t tiles = lane_rows(0).tiles;
    std::array<MatrixRow, 32> rows;
    for (size_t lane = 0; lane < 8 * tiles; ++lane) {
        rows[lane] = lane_rows(lane).row;
    }
    current_block().observers().tell(&Observer::load_matrices,
                                     std::span<const MatrixRow>(rows).first(8 * tiles),
                                     lane_rows(0).location);
    for (size_t m = 0; m < tiles; ++m) {
        uint16_t matrix[8][8];
        for (size_t i = 0; i < 8; ++i) {
            std::memcpy(matrix[i], rows[8 * m + i].address, 16);
        }
        for (size_t lane = 0; lane < 32; ++lane) {
            const size_t g = lane / 4;
            const size_t t = 2 * (lane % 4);
            const uint32_t low = Transposed ? matrix[t][g] : matrix[g][t];
            const uint32_t high = Transposed ? matrix[t + 1][g] : matrix[g][t + 1];
            lane_rows(lane).registers[m] = low | high << 16;
        }
    }
}

} // namespace

void load_matrices(uint32_t* registers, size_t tiles, const void* row, bool transposed,
                   SourceLocation location) {
    Rows own{registers, tiles, {current_block().current().number, row}, location};
    const char* const name = tiles == 1   ? "ldmatrix_x1"
                             : tiles == 2 ? "ldmatrix_x2"
                                          : "ldmatrix_x4";
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::ldmatrix, name, location, full_mask, &own,
                               transposed ? load<true> : load<false>);
}

} // namespace flash::simt
