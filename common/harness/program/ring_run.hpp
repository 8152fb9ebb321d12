// A ring's rung on one problem: each rank's shard is a DeviceRun of its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/harness/program/any_run.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/processes.hpp"

namespace flash {

/// The rows of a (heads, N, d) tensor that a rank holds: (heads, shard.rows(), d).
std::vector<float> cut(std::span<const float> whole, int64_t heads, int64_t d, const Shard& shard);

/// The other way round.
void put_back(std::span<const float> part, int64_t heads, int64_t d, const Shard& shard,
              std::vector<float>& whole);

class RingRun final : public AnyRun {
  public:
    /// This process computes all `ranks` ranks, one after the other, and nothing travels. `whole`
    /// is the problem's input. The heads go round in `portions`. Throws Error when N_q and N_kv
    /// differ, and as DeviceRun does.
    RingRun(const Rung& rung, const Problem& problem, const Inputs& whole, int ranks,
            size_t margin = DeviceRun::default_margin, int portions = 1);

    /// Each process is a rank, which takes part in every call but upload(). That one brings its
    /// input, of problem_of(problem, shard), before the first run; see DeviceRun.
    RingRun(const Rung& rung, const Problem& problem, DType dtype, Processes& processes,
            int portions);
    void upload(size_t i, std::span<const float> values) { mine_.front().run.upload(i, values); }

    void poison() override;
    void run() override;
    double time() override;
    std::vector<float> o() const override { return o(0, heads()); } // whole, on process 0
    std::vector<float> lse() const override { return lse(0, heads()); }
    /// Of the heads first .. first + count - 1 of all B H: the whole may be too large for a host.
    std::vector<float> o(int64_t first, int64_t count) const;
    std::vector<float> lse(int64_t first, int64_t count) const;
    size_t workspace_bytes() const override; // of this process's ranks
    std::string damage() const override;     // on process 0
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
    int64_t heads() const { return problem_.batch * problem_.heads; }
    std::vector<float> gathered(std::vector<float> (DeviceRun::*part)(int64_t, int64_t) const,
                                int64_t d, int64_t first, int64_t count) const;

    Backend& backend_;
    Problem problem_;
    int ranks_;
    Processes* processes_;               // null: this process alone
    std::vector<Neighbours> neighbours_; // of each portion
    std::vector<Rank> mine_;
};

/// Throws Error unless a ring of so many ranks can solve the problem in so many portions.
void require_ring(const Problem& problem, int ranks, int portions = 1);

/// The problem that a rank's tensors have: as many queries and keys as its shard has rows. A rank
/// without rows still passes those of others on; it gets a row that nobody touches.
Problem problem_of(const Problem& whole, const Shard& shard);

/// So many K/V heads of all batches, with the query heads that share them. Unless these are all, it
/// is a problem of one batch, whose tensors are a part of those of the whole.
Problem of_heads(const Problem& whole, int64_t kv_heads);

/// Bytes of a rank's workspace, which is for one portion of the heads at a time.
int64_t workspace_bytes(const Rung& ring, const Problem& whole, const Shard& shard, int portions);

/// The rung as one rank runs it: its problem is problem_of(whole, shard). The heads go round in
/// portions, one after the other. Each has its exchange, which may be that of others, too.
Rung rung_of(const Rung& ring, const Problem& whole, const Shard& shard,
             const std::vector<Exchange*>& exchanges);

} // namespace flash
