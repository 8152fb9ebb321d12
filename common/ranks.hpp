// A sequence that is spread over the ranks of a ring: who holds which of its rows, and how the rows
// of K and V travel. Nothing here knows a rung or a backend.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flash {

/// What one rank holds of a sequence. The sequence is cut into 2 P chunks, and rank r holds two of
/// them, one behind the other: the early chunk r, and the late chunk 2 P - 1 - r. This is called
/// the zigzag order. With P = 4:
///
///     chunk   0  1  2  3  4  5  6  7
///     rank    0  1  2  3  3  2  1  0
///
/// Rows that 2 P does not divide make some chunks one row longer than others; where there are fewer
/// rows than chunks, some are empty.
struct Shard {
    int64_t length = 1; // rows of the whole sequence
    int ranks = 1;      // P
    int rank = 0;

    int early() const { return rank; }
    int late() const { return 2 * ranks - 1 - rank; }
    int64_t begin(int chunk) const { return length * chunk / (int64_t{2} * ranks); }

    int64_t early_rows() const { return begin(early() + 1) - begin(early()); }
    int64_t late_rows() const { return begin(late() + 1) - begin(late()); }
    int64_t rows() const { return early_rows() + late_rows(); }

    Shard of(int other) const { return {length, ranks, other}; }
};

/// K and V of one shard, in device memory.
struct ShardOfKV {
    const void *K, *V;
    size_t bytes; // of K, and of V
};

/// Where the K and V of another shard may be written.
struct RoomForKV {
    void *K, *V;
    size_t bytes; // that will arrive for K, and for V
};

/// How K and V go round the ring: each rank passes on what it holds to the next rank, and gets what
/// the rank before held. All ranks call start() and finish() in turn, equally often.
class Exchange {
  public:
    virtual ~Exchange() = default;

    /// Begins to send `now` to the next rank, and to fill `room` from the rank before. Both happen
    /// after the kernels that were launched so far, and beside those that are launched from here
    /// on. They may read `now`, and must leave `room` alone.
    virtual void start(const ShardOfKV& now, const RoomForKV& room) = 0;

    /// What has arrived. Kernels that are launched from here on may read it, and may overwrite what
    /// was sent.
    virtual ShardOfKV finish() = 0;
};

} // namespace flash
