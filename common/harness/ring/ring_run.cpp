#include "common/harness/ring/ring_run.hpp"

#include <algorithm>
#include <utility>

namespace flash {

std::vector<Range> ranges_of(const Shard& shard, int64_t heads, int64_t d) {
    std::vector<Range> ranges;
    for (int64_t head = 0; head < heads; ++head) {
        for (const int chunk : {shard.early(), shard.late()}) {
            const int64_t begin = shard.begin(chunk), end = shard.begin(chunk + 1);
            ranges.push_back({(head * shard.length + begin) * d, (end - begin) * d});
        }
    }
    return ranges;
}

Problem problem_of(const Problem& whole, const Shard& shard) {
    Problem part = whole;
    part.q_len = std::max<int64_t>(shard.rows(), 1);
    part.kv_len = part.q_len;
    return part;
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

Portion::Portion(const Problem& whole, int i, int portions) {
    const int64_t kv_heads = whole.batch * whole.kv_heads;
    first = kv_heads * i / portions;
    end = kv_heads * (i + 1) / portions;
}

int64_t Portion::largest(const Problem& whole, int portions) {
    return (whole.batch * whole.kv_heads + portions - 1) / portions;
}

void RingRun::Neighbours::start(const ShardOfKV& now, const RoomForKV& /*room*/) {
    const auto holder =
        std::ranges::find(shards, now.K, [](const ShardOfKV& shard) { return shard.K; });
    next_ = holder == shards.begin() ? shards.back() : *std::prev(holder);
}

RingRun::RingRun(const RingKind& ring, const Problem& whole, DType dtype, int ranks,
                 Processes* processes, const Input& input, size_t margin)
    : backend_(ring.backend()), problem_(whole), ranks_(ranks), processes_(processes) {
    const int portions = ring.portions();
    require_ring(whole, ranks, portions);
    std::vector<Exchange*> exchanges;
    if (processes == nullptr) {
        neighbours_.resize(static_cast<size_t>(portions));
        for (Neighbours& neighbours : neighbours_) {
            exchanges.push_back(&neighbours);
        }
    } else {
        exchanges.assign(static_cast<size_t>(portions), &processes->exchange());
    }
    const int first = processes == nullptr ? 0 : processes->rank();
    const int end = processes == nullptr ? ranks : first + 1;
    for (int rank = first; rank < end; ++rank) {
        const Shard shard{whole.q_len, ranks, rank};
        const Problem part = problem_of(whole, shard);
        DeviceRun run(ring.call_of_rank(whole, dtype, shard, exchanges), margin);
        for (size_t i = 0; i < 3; ++i) { // one after the other: a host may be small
            const int64_t heads = whole.batch * (i == 0 ? whole.heads : whole.kv_heads);
            const std::vector<Range> ranges = ranges_of(shard, heads, whole.head_dim);
            std::vector<float> values = shard.rows() > 0 ? input(i, ranges) : std::vector<float>();
            values.resize(static_cast<size_t>(i == 0 ? part.q_size() : part.kv_size()));
            run.upload(i, values);
        }
        for (size_t i = 0; i < neighbours_.size(); ++i) {
            const Portion portion(whole, static_cast<int>(i), portions);
            const auto offset = static_cast<size_t>(portion.first * shard.rows() * whole.head_dim *
                                                    dtype_bytes(dtype));
            const auto from = [offset](const void* tensor) {
                return static_cast<const char*>(tensor) + offset;
            };
            neighbours_[i].shards.push_back(
                {from(run.device_input(1)), from(run.device_input(2)), 0});
        }
        mine_.push_back({shard, std::move(run)});
    }
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

std::vector<float> RingRun::output(size_t i, int64_t first, int64_t count) const {
    const int64_t d = i == 0 ? problem_.head_dim : 1;
    const auto of_rank = [&](const Rank& rank) {
        const int64_t head = rank.shard.rows() * d; // elements
        return rank.run.output(i, first * head, count * head);
    };
    if (!is_first()) {
        const std::vector<float> part = of_rank(mine_.front());
        processes_->send(0, part.data(), part.size() * sizeof(float));
        return {};
    }
    std::vector<float> whole(static_cast<size_t>(count * problem_.q_len * d));
    for (int rank = 0; rank < ranks_; ++rank) {
        const Shard shard{problem_.q_len, ranks_, rank};
        std::vector<float> part;
        if (rank < static_cast<int>(mine_.size())) {
            part = of_rank(mine_[static_cast<size_t>(rank)]);
        } else if (processes_ != nullptr) {
            part.resize(static_cast<size_t>(count * shard.rows() * d));
            processes_->receive(rank, part.data(), part.size() * sizeof(float));
        }
        auto from = part.begin();
        for (const Range& range : ranges_of(shard, count, d)) {
            std::copy_n(from, range.count, whole.begin() + range.first);
            from += range.count;
        }
    }
    return whole;
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
