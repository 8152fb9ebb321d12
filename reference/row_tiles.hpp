// The loop that everything in reference/ runs: over heads and, inside a head, over tiles of query
// rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "common/harness/program/verdict.hpp"

namespace flash::reference {

/// The query rows first .. first + rows - 1 of head (b, h).
struct RowTile {
    int64_t b, h, first, rows;
};

/// The keys that rows see, begin to end - 1; none where end is begin.
struct Keys {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
};

/// The keys that some row of the tile sees: from the first one of the first row to the last one of
/// the last row.
inline Keys keys_of(const Problem& p, const RowTile& tile) {
    return {p.first_key(tile.first), p.visible_keys(tile.first + tile.rows - 1)};
}

/// Those of the tile's row i, counted from the tile's first key.
inline Keys keys_of(const Problem& p, const RowTile& tile, int64_t i) {
    const int64_t begin = keys_of(p, tile).begin, row = tile.first + i;
    return {p.first_key(row) - begin, p.visible_keys(row) - begin};
}

/// How many rows a tile has. It holds at most about a million scores: nothing here ever needs N_q x
/// N_kv memory.
inline int64_t tile_rows_of(const Problem& p) {
    constexpr int64_t most_rows = 128, most_scores = int64_t{1} << 20;
    return std::clamp<int64_t>(most_scores / p.kv_len, 1, most_rows);
}

/// Calls work(RowTile) once for every tile of every head, in parallel over all of them. `ignored`,
/// empty or one flag per row of LSE, marks rows that nobody asks for; a tile that has no other row
/// is left out.
/// An exception thrown by `work` (out of memory, say) is thrown again here, once all threads have
/// stopped.
template <class Work>
void for_each_row_tile(const Problem& p, const std::vector<bool>& ignored, const Progress& progress,
                       Work work) {
    const int64_t tile_rows = tile_rows_of(p);
    const int64_t tiles_per_head = (p.q_len + tile_rows - 1) / tile_rows;
    const int64_t tiles = p.batch * p.heads * tiles_per_head;

    std::atomic<int64_t> done = 0;
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
    for (int64_t t = 0; t < tiles; ++t) {
        try {
            const int64_t head = t / tiles_per_head, first = t % tiles_per_head * tile_rows;
            const int64_t rows = std::min(tile_rows, p.q_len - first);
            const auto flags = ignored.begin() + (ignored.empty() ? 0 : head * p.q_len + first);
            if (ignored.empty() ||
                !std::all_of(flags, flags + rows, [](bool flag) { return flag; })) {
                work(RowTile{head / p.heads, head % p.heads, first, rows});
            }
            const int64_t now = ++done;
            if (progress) {
                progress(static_cast<double>(now) / static_cast<double>(tiles));
            }
        } catch (...) { // an exception must not leave a parallel region
#pragma omp critical
            failure = std::current_exception();
        }
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

} // namespace flash::reference
