#include "reference/sample.hpp"

#include <algorithm>

#include "reference/row_tiles.hpp"

namespace flash::reference {

std::vector<bool> rows_left_out(const Problem& p, int64_t rows_of_head) {
    const int64_t tile_rows = tile_rows_of(p);
    const int64_t tiles = (p.q_len + tile_rows - 1) / tile_rows;
    // one of the inner ones
    const int64_t wanted = std::max<int64_t>((rows_of_head + tile_rows - 1) / tile_rows, 3);
    if (rows_of_head >= p.q_len || wanted >= tiles) {
        return {};
    }
    std::vector<bool> left_out(static_cast<size_t>(p.lse_size()), true);
    const auto keep = [&](int64_t head, int64_t tile) {
        const auto first = left_out.begin() + head * p.q_len + tile * tile_rows;
        std::fill(first, first + std::min(tile_rows, p.q_len - tile * tile_rows), false);
    };
    // without the first and the last tile
    const int64_t inner = tiles - 2, wanted_inner = wanted - 2;
    for (int64_t head = 0; head < p.batch * p.heads; ++head) {
        keep(head, 0);
        keep(head, tiles - 1);
        for (int64_t i = 0; i < wanted_inner; ++i) {
            keep(head, 1 + (i * inner / wanted_inner + head) % inner);
        }
    }
    return left_out;
}

} // namespace flash::reference
