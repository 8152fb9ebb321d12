// Counts the memory traffic of a block, line by line and buffer by buffer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "common/simt/instructions/cp_async.hpp"
#include "common/simt/instructions/tma.hpp"
#include "common/simt/instructions/wgmma.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/observers/counters.hpp"
#include "common/simt/observers/warp_log.hpp"

namespace flash::simt {

struct BufferTraffic {
    std::string name; // as the harness declared it: "Q"
    uint64_t bytes = 0;
    GlobalTraffic load, store;
};

/// What was counted during a launch, on one OS thread or on all. Buffers by their number, in the
/// order of allocation.
struct Tally {
    std::map<LocationId, Counters> lines;
    std::map<uint64_t, BufferTraffic> buffers;
    // bytes of the __shared__ variables that are not the kernel's own, but were used; by offset
    std::map<size_t, size_t> borrowed;
    Tally& operator+=(const Tally& other);
};

class Counting final : public Observer {
  public:
    explicit Counting(Block& block) : block_(block), global_(global_space()) {}

    void begin_launch() {
        tally_ = {};
        recent_ = nullptr;
    }
    const Tally& tally() const { return tally_; }

    void begin_block() override;
    void access(unsigned thread, const AccessEvent& access) override;
    void load_matrices(std::span<const MatrixRow> rows, SourceLocation location) override;
    void start_copy(const AsyncCopy& copy) override;
    void start_load(const BulkLoad& load) override;
    void start_store(const BulkStore& store) override;
    void start_wgmma(const Wgmma& product) override {
        const size_t first = product.type == DType::e4m3 ? 33 : 0;
        line(LocationId::of(product.work.location)).wgmma[first + product.columns / 8] += 4;
    }
    void barrier(SourceLocation location) override { ++line(LocationId::of(location)).barriers; }
    void meet(CollectiveKind meeting, unsigned warp, uint32_t lanes,
              SourceLocation location) override;
    void warp_together(unsigned warp) override; // its requests are complete

  private:
    Counters& line(LocationId origin) { return tally_.lines[origin]; }
    BufferTraffic& traffic_of(const Buffer& buffer);
    void log(unsigned thread, RequestKey key, const char* address);
    void note_variable(size_t offset);
    uint64_t count_chunks(const std::vector<Chunk>& chunks,
                          GlobalTraffic BufferTraffic::*direction);
    void count(const RequestKey& key, uint32_t lanes, const WarpLog::Values& values);

    Block& block_;
    GlobalSpace global_;
    std::array<WarpLog, 32> logs_;
    Tally tally_;
    const SharedVariable* recent_ = nullptr; // __shared__ variable that was used last
};

} // namespace flash::simt
