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
    /// is the problem's input. Throws Error when N_q and N_kv differ, and as DeviceRun does.
    RingRun(const Rung& rung, const Problem& problem, const Inputs& whole, int ranks,
            size_t margin = DeviceRun::default_margin);

    /// Each process is a rank, which takes part in every call. `own` is the input of its shard: of
    /// problem_of(problem, shard).
    RingRun(const Rung& rung, const Problem& problem, const Inputs& own, Processes& processes);

    void poison() override;
    void run() override;
    double time() override;
    std::vector<float> o() const override; // whole, on process 0
    std::vector<float> lse() const override;
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
    std::vector<float> gathered(std::vector<float> (DeviceRun::*part)() const, int64_t d) const;

    Backend& backend_;
    Problem problem_;
    int ranks_;
    Processes* processes_; // null: this process alone
    Neighbours neighbours_;
    std::vector<Rank> mine_;
};

/// Throws Error unless a ring of so many ranks can solve the problem.
void require_ring(const Problem& problem, int ranks);

/// The problem that a rank's tensors have: as many queries and keys as its shard has rows. A rank
/// without rows still passes those of others on; it gets a row that nobody touches.
Problem problem_of(const Problem& whole, const Shard& shard);

/// The rung as one rank runs it: its problem is problem_of(whole, shard).
Rung rung_of(const Rung& ring, const Problem& whole, const Shard& shard, Exchange& exchange);

} // namespace flash
