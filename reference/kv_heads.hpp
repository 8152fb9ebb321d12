// The loop of the gradients: over K/V heads and, inside one, over tiles of rows of the query heads
// that read it.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <vector>

#include "reference/row_tiles.hpp"

namespace flash::reference {

/// Calls work(b, kv_head) once for each K/V head that is not ignored, in parallel. An exception is
/// thrown again here.
template <class Work>
void for_each_kv_head(const Problem& p, const std::vector<bool>& ignored, const Progress& progress,
                      Work work) {
    const int64_t heads = p.batch * p.kv_heads;
    std::atomic<int64_t> done = 0;
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
    for (int64_t head = 0; head < heads; ++head) {
        try {
            if (ignored.empty() || !ignored[static_cast<size_t>(head)]) {
                work(head / p.kv_heads, head % p.kv_heads);
            }
            const int64_t now = ++done;
            if (progress) {
                progress(static_cast<double>(now) / static_cast<double>(heads));
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

/// Whether head h of some batch entry reads an ignored K/V head. Then dsink, a sum over all batch
/// entries, is not known.
inline bool reads_ignored(const Problem& p, const std::vector<bool>& ignored, int64_t h) {
    bool any = false;
    for (int64_t b = 0; b < p.batch && !ignored.empty(); ++b) {
        any = any || ignored[static_cast<size_t>(b * p.kv_heads + p.kv_head(h))];
    }
    return any;
}

/// dsink (H) from the parts of all batch entries, (B, H).
template <class T>
std::vector<T> sum_of_batch(const Problem& p, const std::vector<bool>& ignored,
                            const std::vector<T>& parts) {
    const auto heads = static_cast<size_t>(p.heads);
    std::vector<T> sums(heads);
    for (size_t n = 0; n < parts.size(); ++n) {
        const bool known = !reads_ignored(p, ignored, static_cast<int64_t>(n % heads));
        sums[n % heads] += known ? parts[n] : 0;
    }
    return sums;
}

/// Calls work(RowTile) for the tiles of all query heads that read the K/V head, in order.
template <class Work>
void for_each_tile_of_group(const Problem& p, int64_t b, int64_t kv_head, Work work) {
    const int64_t group = p.heads / p.kv_heads, tile_rows = tile_rows_of(p);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        for (int64_t first = 0; first < p.q_len; first += tile_rows) {
            work(RowTile{b, h, first, std::min(tile_rows, p.q_len - first)});
        }
    }
}

} // namespace flash::reference
