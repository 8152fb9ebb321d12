// A ring's rung on one problem: each rank's shard is a DeviceRun of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/harness/program/device_run.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/ring/ring_kind.hpp"

namespace flash {

/// The elements of a (heads, N, d) tensor that a rank holds.
std::vector<Range> ranges_of(const Shard& shard, int64_t heads, int64_t d);

/// The problem that a rank's tensors have: as many queries and keys as its shard has rows. A rank
/// without rows still passes those of others on; it gets a row that nobody touches.
Problem problem_of(const Problem& whole, const Shard& shard);

/// So many K/V heads of all batches, with the query heads that share them. Unless these are all, it
/// is a problem of one batch, whose tensors are a part of those of the whole.
Problem of_heads(const Problem& whole, int64_t kv_heads);

/// The K/V heads, of all batches, that go round the ring together.
struct Portion {
    int64_t first, end;
    Portion(const Problem& whole, int i, int portions);
    static int64_t largest(const Problem& whole, int portions);
};

class RingRun final : public AnyRun {
  public:
    /// These ranges of Q (`i` is 0), K or V.
    using Input = std::function<std::vector<float>(size_t i, const std::vector<Range>&)>;

    /// With `processes` each of them is a rank, which takes part in every call; without, this
    /// process computes all ranks, one after the other, and nothing travels. Throws Error as
    /// require_ring and DeviceRun do.
    RingRun(const RingKind& ring, const Problem& whole, DType dtype, int ranks,
            Processes* processes, const Input& input, size_t margin = default_margin);

    void poison() override;
    void run() override;
    double time() override;
    std::vector<float> output(size_t i) const override { // whole, on process 0
        return output(i, 0, problem_.batch * problem_.heads);
    }
    /// Of the heads first .. first + count - 1 of all B H: the whole may be too large for a host.
    std::vector<float> output(size_t i, int64_t first, int64_t count) const;
    size_t workspace_bytes() const override; // of this process's ranks
    std::string damage() const override;     // on process 0
    bool is_first() const override { return processes_ == nullptr || processes_->rank() == 0; }
    bool agree(bool wanted) override;

  private:
    /// Instead of travelling, a shard is read where it is.
    class Neighbours final : public Exchange {
      public:
        void start(const ShardOfKV& now, const RoomForKV& room) override;
        ShardOfKV finish() override { return next_; }
        std::vector<ShardOfKV> shards; // of all ranks

      private:
        ShardOfKV next_ = {};
    };
    struct Rank {
        Shard shard;
        DeviceRun run;
    };
    void launch();

    Backend& backend_;
    Problem problem_;
    int ranks_;
    Processes* processes_;
    std::vector<Neighbours> neighbours_; // of each portion
    std::vector<Rank> mine_;
};

} // namespace flash
