#include "common/harness/program/ring_run.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace flash {
namespace {

/// Calls copy(offset in the whole, offset in the part, elements) for each chunk of each head.
template <class Copy>
void for_each_chunk(int64_t heads, int64_t d, const Shard& shard, const Copy& copy) {
    for (int64_t head = 0; head < heads; ++head) {
        const int64_t whole = head * shard.length, part = head * shard.rows();
        copy((whole + shard.begin(shard.early())) * d, part * d, shard.early_rows() * d);
        copy((whole + shard.begin(shard.late())) * d, (part + shard.early_rows()) * d,
             shard.late_rows() * d);
    }
}

void send(Processes& processes, int to, const std::vector<float>& values) {
    processes.send(to, values.data(), values.size() * sizeof(float));
}

void receive(Processes& processes, int from, std::vector<float>& values, int64_t size) {
    values.resize(static_cast<size_t>(size));
    processes.receive(from, values.data(), values.size() * sizeof(float));
}

} // namespace

std::vector<float> cut(std::span<const float> whole, int64_t heads, int64_t d, const Shard& shard) {
    std::vector<float> part(static_cast<size_t>(heads * shard.rows() * d));
    for_each_chunk(heads, d, shard, [&](int64_t from, int64_t to, int64_t size) {
        std::copy_n(whole.begin() + from, size, part.begin() + to);
    });
    return part;
}

void put_back(std::span<const float> part, int64_t heads, int64_t d, const Shard& shard,
              std::vector<float>& whole) {
    for_each_chunk(heads, d, shard, [&](int64_t to, int64_t from, int64_t size) {
        std::copy_n(part.begin() + from, size, whole.begin() + to);
    });
}

void require_ring(const Problem& problem, int ranks) {
    constexpr int most = 4096; // far beyond any ring, and far from where an int overflows
    if (ranks > most) {
        throw Error("a ring can have " + std::to_string(most) + " ranks at most, got " +
                    std::to_string(ranks));
    }
    if (problem.q_len != problem.kv_len) {
        throw Error("a ring needs q-len = kv-len, because a rank holds the same rows of Q, K and "
                    "V; got " +
                    std::to_string(problem.q_len) + " and " + std::to_string(problem.kv_len));
    }
}

Problem problem_of(const Problem& whole, const Shard& shard) {
    Problem part = whole;
    part.q_len = std::max<int64_t>(shard.rows(), 1);
    part.kv_len = part.q_len;
    return part;
}

Rung rung_of(const Rung& ring, const Problem& whole, const Shard& shard, Exchange& exchange) {
    const auto bound = [&]<class T>(ForwardOfRank<T> function) {
        return Forward<T>([=, &exchange](const Problem&, const T* Q, const T* K, const T* V, T* O,
                                         float* LSE, void* workspace) {
            function(whole, shard, Q, K, V, O, LSE, workspace, exchange);
        });
    };
    Rung rung = ring;
    rung.fp16 = bound(ring.ring.fp16);
    rung.bf16 = bound(ring.ring.bf16);
    rung.workspace_bytes = [=, bytes = ring.ring.workspace_bytes](const Problem&) {
        return bytes(whole, shard);
    };
    return rung;
}

void RingRun::Neighbours::start(const ShardOfKV& now, const RoomForKV& /*room*/) {
    const auto holder =
        std::ranges::find(shards, now.K, [](const ShardOfKV& shard) { return shard.K; });
    next_ = holder == shards.begin() ? shards.back() : *std::prev(holder);
}

RingRun::RingRun(const Rung& rung, const Problem& problem, const Inputs& whole, int ranks,
                 size_t margin)
    : backend_(rung.backend()), problem_(problem), ranks_(ranks), processes_(nullptr) {
    require_ring(problem, ranks);
    const int64_t d = problem.head_dim;
    const int64_t heads = problem.batch * problem.heads;
    const int64_t kv_heads = problem.batch * problem.kv_heads;
    for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard{problem.q_len, ranks, rank};
        const Problem part = problem_of(problem, shard);
        std::vector<float> q = cut(whole.q, heads, d, shard);
        std::vector<float> k = cut(whole.k, kv_heads, d, shard);
        std::vector<float> v = cut(whole.v, kv_heads, d, shard);
        q.resize(static_cast<size_t>(part.q_size()));
        k.resize(static_cast<size_t>(part.kv_size()));
        v.resize(static_cast<size_t>(part.kv_size()));
        mine_.push_back({shard, DeviceRun(rung_of(rung, problem, shard, neighbours_), part,
                                          {whole.dtype, q, k, v}, margin)});
        const DeviceRun& run = mine_.back().run;
        neighbours_.shards.push_back({run.device_input(1), run.device_input(2), 0});
    }
}

RingRun::RingRun(const Rung& rung, const Problem& problem, const Inputs& own, Processes& processes)
    : backend_(rung.backend()), problem_(problem), ranks_(processes.size()),
      processes_(&processes) {
    require_ring(problem, ranks_);
    const Shard shard{problem.q_len, ranks_, processes.rank()};
    mine_.push_back({shard, DeviceRun(rung_of(rung, problem, shard, processes.exchange()),
                                      problem_of(problem, shard), own)});
}

void RingRun::poison() {
    for (Rank& rank : mine_) {
        rank.run.poison();
    }
}

void RingRun::launch() {
    for (Rank& rank : mine_) {
        rank.run.launch();
    }
}

void RingRun::run() {
    launch();
    backend_.synchronize();
}

double RingRun::time() {
    backend_.flush_caches();
    backend_.synchronize();
    if (processes_ == nullptr) {
        return backend_.time([this] { launch(); });
    }
    processes_->largest(0); // all begin together
    return processes_->largest(backend_.time([this] { launch(); }));
}

std::vector<float> RingRun::gathered(std::vector<float> (DeviceRun::*part)() const,
                                     int64_t d) const {
    const int64_t heads = problem_.batch * problem_.heads;
    if (processes_ != nullptr && processes_->rank() > 0) {
        std::vector<float> values = (mine_.front().run.*part)();
        values.resize(static_cast<size_t>(heads * mine_.front().shard.rows() * d));
        send(*processes_, 0, values);
        return {};
    }
    std::vector<float> whole(static_cast<size_t>(heads * problem_.q_len * d)), values;
    for (int rank = 0; rank < ranks_; ++rank) {
        const Shard shard{problem_.q_len, ranks_, rank};
        if (rank < static_cast<int>(mine_.size())) {
            values = (mine_[static_cast<size_t>(rank)].run.*part)();
        } else if (processes_ != nullptr) {
            receive(*processes_, rank, values, heads * shard.rows() * d);
        }
        put_back(values, heads, d, shard, whole);
    }
    return whole;
}

std::vector<float> RingRun::o() const { return gathered(&DeviceRun::o, problem_.head_dim); }
std::vector<float> RingRun::lse() const { return gathered(&DeviceRun::lse, 1); }

size_t RingRun::workspace_bytes() const {
    size_t bytes = 0;
    for (const Rank& rank : mine_) {
        bytes += rank.run.workspace_bytes();
    }
    return bytes;
}

std::string RingRun::damage() const {
    std::string found;
    for (const Rank& rank : mine_) {
        if (const std::string damage = rank.run.damage(); found.empty() && !damage.empty()) {
            found = "rank " + std::to_string(rank.shard.rank) + ": " + damage;
        }
    }
    return processes_ == nullptr ? found : processes_->first_text(found);
}

bool RingRun::agree(bool wanted) {
    if (processes_ != nullptr) {
        processes_->share(&wanted, sizeof wanted);
    }
    return wanted;
}

} // namespace flash
