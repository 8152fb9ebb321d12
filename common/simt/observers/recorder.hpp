// Records one block's run, to be replayed in a browser (docs/watch_format.md).
//
// Lanes run one after the other here. Each lane's instructions are therefore matched with those of
// the lanes before it, as the counters match accesses: the k-th of a lane at one place, since the
// warp was last together, is the k-th of the others. What is new goes behind the instruction that
// the lane came from, so that each lane's order is kept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simt/machine/block.hpp"
#include "common/simt/observers/counting.hpp"

namespace flash::simt {

/// What the instructions at one place have in common. Those that touch memory are told apart as the
/// counters do it.
struct Site {
    const char* operation;
    LocationId origin;
    Space space = Space::elsewhere;
    uint8_t bytes = 0; // of a lane's access
    bool async = false;
    const void* at = nullptr; // the barrier
    friend bool operator==(const Site&, const Site&) = default;
};

/// Which lanes, and where: byte offsets of each, or runs of bytes that no lane owns.
struct Pattern {
    uint32_t lanes = 0;
    std::vector<int64_t> offsets;
    std::vector<int64_t> runs; // offset, length, offset, length, ..
    friend auto operator<=>(const Pattern&, const Pattern&) = default;
};

/// A pattern at a place of a trace's memory.
struct Touched {
    uint32_t pattern = 0; // 0: nothing
    int64_t base = 0;
};

constexpr unsigned engine = 32; // the copy engine, in place of a warp

/// One instruction of one warp.
struct Step {
    uint32_t site;
    Touched first, second;
    uint32_t lanes;
    int64_t number = 0;
    std::vector<uint8_t> data; // that it writes to shared memory
};

/// A buffer in global memory, and where a trace puts it.
struct SeenBuffer {
    const char* begin;
    std::string name;
    size_t bytes;
    int64_t base;
};

/// One block's run: each warp's instructions in their order.
struct Recording {
    std::vector<Site> sites;
    std::vector<Pattern> patterns = {{}};
    std::array<std::vector<Step>, 32> warps;
    std::map<uint64_t, SeenBuffer> buffers;
    std::map<std::pair<const void*, int64_t>, unsigned> loads; // by TMA, that end such a phase
    std::map<const void*, int64_t> phases;                     // that ended
    unsigned last_warp = 0;  // whose instruction came last, before a fault
    int64_t static_base = 0; // where a trace puts __shared__ variables: behind the dynamic part

    size_t steps() const;
};

class Recorder final : public Observer {
  public:
    explicit Recorder(Block& block) : block_(block), counting_(block) {}

    /// Those who look on: the recorder, and counters of its own.
    void add_to(Observers& observers) {
        observers.push_back(&counting_);
        observers.push_back(this);
    }

    void begin_block() override;
    std::optional<Fault> end_block() override;
    void stopped(const Fault& fault) override;
    void access(unsigned thread, const AccessEvent& access) override;
    void touch(unsigned thread, const AccessEvent& access) override;
    void visit(unsigned thread, LocationId origin) override;
    void instruct(unsigned thread, const Instruction& instruction) override;
    void load_matrices(std::span<const MatrixRow> rows, SourceLocation location) override;
    void start_copy(const AsyncCopy& copy) override;
    void start_load(const BulkLoad& load) override;
    void land(const BulkLoad& load) override;
    void start_store(const BulkStore& store) override;
    void start_wgmma(const Wgmma& product) override;
    void end_phase(const void* barrier) override;
    void barrier(SourceLocation location) override;
    void meet(CollectiveKind kind, unsigned warp, uint32_t lanes, SourceLocation location) override;
    void warp_together(unsigned warp) override;

  private:
    /// An instruction as far as its lanes have come.
    struct Request {
        uint32_t site;
        uint32_t next = 0; // behind it; 0: none
        uint32_t lanes = 0;
        std::array<int64_t, 32> of_lane; // an address, or a number
        std::vector<uint8_t> data;       // of each lane its bytes
        Touched first, second;           // of what one thread asks for
        uint32_t reads = 0;              // of cp.async: the request that is its read
    };
    struct AtSite {
        std::vector<uint32_t> requests;
        std::array<uint32_t, 32> used{}; // by each lane
    };
    struct Log {
        std::vector<Request> requests{1}; // the first one stands before all
        std::array<uint32_t, 32> last{};  // of each lane
        std::unordered_map<uint32_t, AtSite> sites;
    };
    struct Hash {
        size_t operator()(const Site& site) const;
    };
    /// A store that the current thread is about to make: what it writes is known at the next event.
    struct Pending {
        unsigned warp, lane;
        uint32_t request;
        const char* address;
        unsigned bytes;
    };

    uint32_t site(const Site& site);
    uint32_t pattern(Pattern pattern);
    Request& join(unsigned thread, const Site& site, int64_t of_lane);
    void settle();
    int64_t place(const char* address, Space space);
    Touched place_runs(const std::vector<std::pair<const char*, unsigned>>& pieces, Space space,
                       uint32_t lanes);
    Step step_of(const Request& request, const Log& log);
    void flush(unsigned warp);
    void finish(const Fault* fault);

    Block& block_;
    Counting counting_;
    bool active_ = false;
    std::unique_ptr<Recording> recording_; // of the block that runs, or has ended last
    std::array<Log, 32> logs_;
    std::unordered_map<Site, uint32_t, Hash> site_numbers_;
    std::map<Pattern, uint32_t> pattern_numbers_;
    std::optional<Pending> pending_;
    std::array<MatrixRow, 32> rows_{}; // of the ldmatrix that the warp is about to end
    std::map<uint32_t, int64_t> load_phases_;
    std::array<std::vector<std::pair<std::array<Touched, 4>, Touched>>, 8> products_;
    std::array<uint32_t, 32> products_begun_{}; // by each warp
    int64_t next_base_ = 0;                     // of global memory
    SeenBuffer* recent_ = nullptr;
};

/// Whether this program's environment asks for a recording: FLASH_SIMT_WATCH names the file.
bool recording_wanted();

} // namespace flash::simt
