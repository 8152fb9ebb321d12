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

/// The K/V heads, of all batches, that go round the ring together.
struct Portion {
    int64_t first, end;
    Portion(const Problem& whole, int i, int portions) {
        const int64_t kv_heads = whole.batch * whole.kv_heads;
        first = kv_heads * i / portions;
        end = kv_heads * (i + 1) / portions;
    }
    static int64_t largest(const Problem& whole, int portions) {
        return (whole.batch * whole.kv_heads + portions - 1) / portions;
    }
};

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

void require_ring(const Problem& problem, int ranks, int portions) {
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
    if (const int64_t kv_heads = problem.batch * problem.kv_heads; portions > kv_heads) {
        throw Error("--portions can be " + std::to_string(kv_heads) +
                    " at most, because each needs a K/V head, got " + std::to_string(portions));
    }
}

Problem of_heads(const Problem& whole, int64_t kv_heads) {
    if (kv_heads == whole.batch * whole.kv_heads) {
        return whole;
    }
    Problem part = whole;
    part.batch = 1;
    part.heads = kv_heads * (whole.heads / whole.kv_heads);
    part.kv_heads = kv_heads;
    return part;
}

Problem problem_of(const Problem& whole, const Shard& shard) {
    Problem part = whole;
    part.q_len = std::max<int64_t>(shard.rows(), 1);
    part.kv_len = part.q_len;
    return part;
}

int64_t workspace_bytes(const Rung& ring, const Problem& whole, const Shard& shard, int portions) {
    return ring.ring.workspace_bytes(of_heads(whole, Portion::largest(whole, portions)), shard);
}

Rung rung_of(const Rung& ring, const Problem& whole, const Shard& shard,
             const std::vector<Exchange*>& exchanges) {
    const int portions = static_cast<int>(exchanges.size());
    const auto bound = [&]<class T>(ForwardOfRank<T> function) {
        return Forward<T>([=](const Problem&, const T* Q, const T* K, const T* V, T* O, float* LSE,
                              void* workspace) {
            for (int i = 0; i < portions; ++i) {
                const Portion portion(whole, i, portions);
                const Problem part = of_heads(whole, portion.end - portion.first);
                const int64_t KV_row = portion.first * shard.rows();
                const int64_t row = KV_row * (whole.heads / whole.kv_heads), d = whole.head_dim;
                function(part, shard, Q + row * d, K + KV_row * d, V + KV_row * d, O + row * d,
                         LSE + row, workspace, *exchanges[static_cast<size_t>(i)]);
            }
        });
    };
    Rung rung = ring;
    rung.fp16 = bound(ring.ring.fp16);
    rung.bf16 = bound(ring.ring.bf16);
    rung.workspace_bytes = [=](const Problem&) {
        return workspace_bytes(ring, whole, shard, portions);
    };
    return rung;
}

void RingRun::Neighbours::start(const ShardOfKV& now, const RoomForKV& /*room*/) {
    const auto holder =
        std::ranges::find(shards, now.K, [](const ShardOfKV& shard) { return shard.K; });
    next_ = holder == shards.begin() ? shards.back() : *std::prev(holder);
}

RingRun::RingRun(const Rung& rung, const Problem& problem, const Inputs& whole, int ranks,
                 size_t margin, int portions)
    : backend_(rung.backend()), problem_(problem), ranks_(ranks), processes_(nullptr),
      neighbours_(static_cast<size_t>(portions)) {
    require_ring(problem, ranks, portions);
    const int64_t d = problem.head_dim;
    const int64_t kv_heads = problem.batch * problem.kv_heads;
    std::vector<Exchange*> exchanges;
    for (Neighbours& neighbours : neighbours_) {
        exchanges.push_back(&neighbours);
    }
    for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard{problem.q_len, ranks, rank};
        const Problem part = problem_of(problem, shard);
        std::vector<float> q = cut(whole.q, heads(), d, shard);
        std::vector<float> k = cut(whole.k, kv_heads, d, shard);
        std::vector<float> v = cut(whole.v, kv_heads, d, shard);
        q.resize(static_cast<size_t>(part.q_size()));
        k.resize(static_cast<size_t>(part.kv_size()));
        v.resize(static_cast<size_t>(part.kv_size()));
        mine_.push_back({shard, DeviceRun(rung_of(rung, problem, shard, exchanges), part,
                                          {whole.dtype, q, k, v}, margin)});
        const DeviceRun& run = mine_.back().run;
        for (int i = 0; i < portions; ++i) {
            const auto offset = static_cast<size_t>(Portion(problem, i, portions).first *
                                                    shard.rows() * d * dtype_bytes(whole.dtype));
            const auto from = [offset](const void* tensor) {
                return static_cast<const char*>(tensor) + offset;
            };
            neighbours_[static_cast<size_t>(i)].shards.push_back(
                {from(run.device_input(1)), from(run.device_input(2)), 0});
        }
    }
}

RingRun::RingRun(const Rung& rung, const Problem& problem, DType dtype, Processes& processes,
                 int portions)
    : backend_(rung.backend()), problem_(problem), ranks_(processes.size()),
      processes_(&processes) {
    require_ring(problem, ranks_, portions);
    const Shard shard{problem.q_len, ranks_, processes.rank()};
    const std::vector<Exchange*> exchanges(static_cast<size_t>(portions), &processes.exchange());
    mine_.push_back({shard, DeviceRun(rung_of(rung, problem, shard, exchanges),
                                      problem_of(problem, shard), dtype)});
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

std::vector<float> RingRun::gathered(std::vector<float> (DeviceRun::*part)(int64_t, int64_t) const,
                                     int64_t d, int64_t first, int64_t count) const {
    const auto of_rank = [&](const Rank& rank) {
        const int64_t head = rank.shard.rows() * d; // elements
        return (rank.run.*part)(first * head, count * head);
    };
    if (processes_ != nullptr && processes_->rank() > 0) {
        send(*processes_, 0, of_rank(mine_.front()));
        return {};
    }
    std::vector<float> whole(static_cast<size_t>(count * problem_.q_len * d)), values;
    for (int rank = 0; rank < ranks_; ++rank) {
        const Shard shard{problem_.q_len, ranks_, rank};
        if (rank < static_cast<int>(mine_.size())) {
            values = of_rank(mine_[static_cast<size_t>(rank)]);
        } else if (processes_ != nullptr) {
            receive(*processes_, rank, values, count * shard.rows() * d);
        }
        put_back(values, count, d, shard, whole);
    }
    return whole;
}

std::vector<float> RingRun::o(int64_t first, int64_t count) const {
    return gathered(&DeviceRun::o, problem_.head_dim, first, count);
}
std::vector<float> RingRun::lse(int64_t first, int64_t count) const {
    return gathered(&DeviceRun::lse, 1, first, count);
}

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
