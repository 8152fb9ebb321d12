// Q, K and V, handed out tile by tile, with a count of the bytes that went out.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "common/cpu/matrix.hpp"

namespace flash::cpu {

/// Bytes that all Tiles of the process have handed out. A test sets them to 0, runs a rung, and
/// compares with the number of passes that the rung claims to make.
struct BytesRead {
    std::atomic<int64_t> Q = 0;
    std::atomic<int64_t> K = 0;
    std::atomic<int64_t> V = 0;
};
inline BytesRead bytes_read;

/// A matrix cut into tiles of `rows_per_tile` whole rows; the last tile may be shorter.
/// A tile counts as read each time it is handed out. Nothing is copied.
class Tiles {
  public:
    Tiles(const ConstMatrixView& matrix, int64_t rows_per_tile, std::atomic<int64_t>& counter)
        : matrix_(matrix), rows_per_tile_(rows_per_tile), counter_(counter) {}

    ConstMatrixView operator[](int64_t tile) const {
        const int64_t first = tile * rows_per_tile_;
        const int64_t rows = std::min(rows_per_tile_, matrix_.rows() - first);
        // Other threads count at the same time. No other memory depends on the count, so relaxed
        // order is enough.
        counter_.fetch_add(rows * matrix_.cols() * static_cast<int64_t>(sizeof(float)),
                           std::memory_order_relaxed);
        return {matrix_.data() + first * matrix_.cols(), rows, matrix_.cols()};
    }

  private:
    ConstMatrixView matrix_;
    int64_t rows_per_tile_;
    std::atomic<int64_t>& counter_;
};

} // namespace flash::cpu
