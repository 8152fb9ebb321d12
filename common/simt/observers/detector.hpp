// Watches every access of a block to global and shared memory, and stops the block at the first
// that is wrong.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/simt/machine/block.hpp"
#include "common/simt/observers/race.hpp"

namespace flash::simt {

class Detector final : public Observer {
  public:
    Detector(Block& block, GlobalPast& past);

    void begin_launch();

    void begin_block() override;
    std::optional<Fault> end_block() override;
    void access(unsigned thread, const AccessEvent& access) override;
    bool is_usual_load(unsigned thread, const char* word, LocationId origin);
    void access_local(unsigned thread, const AccessEvent& access) override;
    void load_matrices(std::span<const MatrixRow> rows, SourceLocation location) override;
    void start_copy(const AsyncCopy& copy) override;
    void wait_for_copies(unsigned thread, uint32_t count) override;
    void touch(unsigned thread, const AccessEvent& word) override { access(thread, word); }
    void make_mbarrier(unsigned thread, const void* barrier) override;
    void release(unsigned thread, const void* barrier, SourceLocation location) override;
    void hand_on_copies(unsigned thread, uint32_t count, const void* barrier) override;
    void end_phase(const void* barrier) override;
    void await(unsigned thread, const void* barrier, int64_t phase,
               SourceLocation location) override;
    void acquire(unsigned thread, const void* barrier) override;
    void start_load(const BulkLoad& load) override;
    void land(const BulkLoad& load) override;
    void start_store(const BulkStore& store) override;
    void wait_for_stores(unsigned thread, uint32_t groups) override;
    void start_wgmma(const Wgmma& product) override;
    void wait_for_wgmma(unsigned thread, uint32_t groups) override;
    void fence_wgmma(unsigned thread) override;
    void fence_proxy(unsigned thread) override;
    void fence_mbarriers(unsigned thread) override;
    void strong_read(unsigned thread, const void* address, Scope scope) override;
    void strong_write(unsigned thread, const void* address, Scope scope, bool replaces) override;
    void fence(unsigned thread, Scope scope) override;
    void end_thread(unsigned thread) override;
    void go_on() override;
    void pass_semaphore(unsigned thread, const unsigned* semaphore, unsigned value) override;
    void add_to_semaphore(unsigned thread, const unsigned* semaphore) override;
    void barrier(SourceLocation location) override;
    void meet(CollectiveKind meeting, unsigned warp, uint32_t lanes,
              SourceLocation location) override;

  private:
    struct Region { // what an address lies in
        const char* begin = nullptr;
        size_t bytes = 0;
        std::string_view name;
        Shadow* shadow = nullptr;
        WrittenBytes* written = nullptr; // null: all of it
        bool constant = false;
        bool contains(const AccessEvent& access) const {
            return access.address >= begin && access.address + access.bytes <= begin + bytes;
        }
        /// Calls `use(cell)` with each cell of an access.
        template <class Use> void visit(const AccessEvent& access, CellMemo& memo, Use use) const {
            shadow->visit(access.address, access.bytes, access.kind == AccessKind::store,
                          [&](Cell& cell) { memo(cell, use); });
        }
        template <class Use> void visit(const AccessEvent& access, Use use) const {
            CellMemo memo;
            visit(access, memo, use);
        }
    };

    /// What a thread does at an mbarrier, as the `number`th of its steps, from 1.
    struct Arrival {
        unsigned thread = 0;
        uint32_t number = 0;
        SourceLocation location;
    };
    struct Wait {
        int64_t phase = 0;
        uint32_t number = 0; // 0: there is none
        SourceLocation location;
    };
    struct Phase {
        std::vector<Arrival> arrivals;
        Arrival last;
        bool with_copies = false; // so it may go on after the last arrival
    };

    /// What those who arrive at an mbarrier hand on to those who wait, for this phase and for the
    /// one before.
    struct BarrierClocks {
        Clocks::Knowledge gathered, handed_on;
        // Of an mbarrier, not of a named barrier:
        uint32_t channel = 0, phases = 0; // that have ended
        unsigned maker = 0;               // thread that initialised it
        LocationId made;
        bool fenced = false; // so that TMA knows of it
        bool is_mbarrier() const { return channel != 0; }
        uint32_t progress = 0; // the channel of its phases that says nothing of memory
        Phase phase;
        std::array<Phase, 2> ended;    // the last one, and the one before
        std::vector<Wait> asked, over; // each thread's last wait, and its last that is over
    };

    /// Registers that a product under way uses, as addresses on the thread's stack: it writes C,
    /// and reads A.
    struct InFlight {
        const char* begin;
        size_t bytes;
        uint32_t group, work;
        bool of_C;
    };
    struct OwnRegisters {
        std::vector<InFlight> in_flight;
        bool fenced = false;              // by wgmma_fence, once
        std::vector<const char*> touched; // since then
    };

    /// A line that loads words, and what they lie in.
    struct LoadingLine {
        LocationId origin;
        bool shared = false, may_be_unwritten = false;
        const char* begin = nullptr;
        size_t bytes = 0;
        Cell* cells = nullptr;
    };
    LoadingLine& loading_line(LocationId origin) {
        return loading_lines_[(origin.number() ^ origin.number() >> 7) % loading_lines_.size()];
    }

    struct AsyncReaders { // for whom TMA or tensor cores read
        unsigned first, threads;
        uint32_t work, works;
        const Clocks::Knowledge& known;
    };

    /// A volatile load of what another thread has written: no matter for doubt where a fence
    /// follows, and makes it part of an order.
    struct VolatileLoad {
        unsigned thread;
        const void* address;
        Fault doubt;
        bool in_warp;              // a lane of the same warp has written it
        std::optional<Fault> race; // then, in shared memory, unless it waits for that
    };

    /// A plain load of what others have updated atomically: no race where an atomicCAS follows,
    /// which checks the value.
    struct PlainLoad {
        unsigned thread;
        const char* address;
        Fault race;
    };
    void note_volatile_load(unsigned thread, const AccessEvent& access);
    bool may_be_checked(unsigned thread, const AccessEvent& access, const Region& region,
                        const RaceDetector::Race& race);
    void note_comparison(unsigned thread, const AccessEvent& access, const Cell& cell,
                         const Access& now, bool shared);
    void warn_of_plain_read(Fault race);
    Fault race_in_warp(unsigned thread, const AccessEvent& access, const Region& region,
                       const RaceDetector::Race& race) const;
    void doubt(unsigned thread, const AccessEvent& access, const Region& region,
               const RaceDetector::Race& race);
    bool looks_again(const Access& reader, const char* address) const;
    bool is_shared(const void* address) const {
        return block_.space_of(static_cast<const char*>(address)) == Space::shared;
    }
    static std::span<Cell> known_cells(const Region& region, const AccessEvent& access);
    bool is_written_anew(unsigned thread, const AccessEvent& access, Space space);
    bool is_recalled(unsigned thread, const AccessEvent& access, Space space);
    void check(unsigned thread, const AccessEvent& access, Space space);
    void read_by(const AsyncReaders& readers, const AccessEvent& access, CellMemo& memo);
    void check_written(unsigned thread, const AccessEvent& access, const Region& region);
    bool is_padding(unsigned thread, const AccessEvent& access, const AccessEvent& part,
                    const Region& region) const;
    std::string hint_elsewhere(const char* address) const;
    void check_elsewhere(unsigned thread, const AccessEvent& access);
    uint32_t step_at_mbarrier(unsigned thread);
    bool knows_arrivals(unsigned thread, const Phase& phase) const;
    void check_waits(const BarrierClocks& barrier);
    void report_missed_phase(unsigned thread, SourceLocation wait, const Arrival& end);
    std::optional<Fault> load_left_behind();
    uint32_t begin_work(const AsyncWork& work, uint32_t channel, uint32_t number,
                        EngineWork::Kind kind);
    bool is_in_flight(const EngineWork& work) const; // nobody knows that it is over
    uint32_t channel_in(uint32_t& own) { return own = own == 0 ? channels_++ : own; }
    void check_global(const AsyncWork& work, const Chunk& chunk, AccessKind kind);
    void check_turn(const AsyncWork& work, const Chunk& chunk);
    void read_by_warpgroup(const Wgmma& product, const std::vector<OperandRow>& rows);
    void begin_registers(const Wgmma& product, unsigned thread_of_group, uint32_t work);
    void note_unwritten(unsigned thread, const AccessEvent& access, const Region& region);
    static std::string in(const AccessEvent& access, const Region& region); // "at byte 16 of tile"
    [[noreturn, gnu::cold]] void stop_async_race(unsigned thread, const AccessEvent& access,
                                                 const Region& region,
                                                 const RaceDetector::Race& race) const;
    [[noreturn, gnu::cold]] void stop_unfenced(const AccessEvent& access, const Region& region,
                                               const Cell& cell) const;
    const Region& recent(const char* address, Space space) const;
    const Region& find_anew(unsigned thread, const AccessEvent& access, Space space);
    const Region& find(unsigned thread, const AccessEvent& access, Space space);
    Region look_up(const AccessEvent& access, Space space);
    bool check_cell(unsigned thread, const AccessEvent& access, const Region& region, bool shared,
                    Cell& cell);
    ThreadAction action_of(const Access& access, const Access& now, const char* action) const;
    // of the other one
    ThreadAction action_of(const RaceDetector::Race& race, unsigned thread,
                           const AccessEvent& access) const;
    ThreadAction action_of(unsigned thread, const AccessEvent& access) const;
    ThreadAction action_of(const EngineWork& work, const char* what) const;
    ThreadAction action_of_actor(unsigned thread, const AccessEvent& access,
                                 const char* what) const;
    [[noreturn, gnu::cold]] void stop_outside(unsigned thread, const AccessEvent& access,
                                              const Region& region) const;
    [[noreturn, gnu::cold]] void stop_race(unsigned thread, const AccessEvent& access,
                                           const Region& region, const RaceDetector::Race& race);
    Fault race_of_threads(unsigned thread, const AccessEvent& access, const Region& region,
                          const RaceDetector::Race& race) const;
    bool is_of_two_writes(const AccessEvent& access, const RaceDetector::Race& race) const;

    Block& block_;
    RaceDetector races_;
    // during this launch: pairs of places, and whether lanes of one warp met there
    std::set<std::tuple<LocationId, LocationId, bool>> doubted_;
    std::set<LocationId> polling_;         // volatile loads that a thread has repeated
    std::set<LocationId> read_before_cas_; // plain loads whose value an atomicCAS checks
    // of this block, since the last barrier: thread, place and address
    std::set<std::tuple<unsigned, LocationId, const char*>> volatile_reads_;
    std::vector<PlainLoad> plain_loads_; // of this block
    LocationId last_barrier_;
    std::vector<VolatileLoad> volatile_loads_; // of this block
    // a read of memory that nobody wrote, kept until the next barrier
    std::optional<Fault> unwritten_;
    std::map<const void*, BarrierClocks> barrier_clocks_;
    // what is known after the first, second... addition
    std::map<const void*, std::vector<RaceDetector::Blocks>> semaphores_;
    std::vector<OwnRegisters> registers_; // of each thread of the block
    uint32_t channels_ = 0;
    // of each thread, wgmma_channels_ of each warp; 0: none yet
    std::vector<uint32_t> copy_channels_, store_channels_;
    std::array<uint32_t, 32> wgmma_channels_{};
    // of each thread's steps at mbarriers, and how many it has made
    std::vector<uint32_t> step_channels_, steps_;
    std::vector<uint32_t> progress_channels_; // those, and the mbarriers' own
    uint32_t warps_with_news_ = 0;            // of those channels, that not all lanes may know of
    // in whose place a thread's access is checked; null: the thread's own
    const AsyncWork* actor_ = nullptr;
    // of this launch: in global memory, and the dynamic shared memory
    std::array<Region, 8> recent_;
    std::deque<Region> variables_;           // __shared__, met in this launch; the first is none
    std::vector<uint16_t> variable_of_word_; // of the segment: its number there, 0 not known yet
    std::array<LoadingLine, 128> loading_lines_;
    Executable executable_; // its constants may be read
};

/// Who alone looks on at the blocks of this OS thread; null if there are others, or nobody.
extern constinit thread_local Detector* sole_detector;

/// Most accesses are to a buffer or variable of one before. Neighbouring buffers lie 4 MiB apart,
/// or more.
inline const Detector::Region& Detector::recent(const char* address, Space space) const {
    if (space == Space::global) {
        return recent_[(reinterpret_cast<size_t>(address) >> 22) % 7];
    }
    const SharedMemory& shared = block_.shared();
    return shared.is_static(address)
               ? variables_
                     [variable_of_word_[static_cast<size_t>(address - shared.segment().begin) / 4]]
               : recent_[7];
}

/// Stops the block when the access is not inside.
inline const Detector::Region& Detector::find(unsigned thread, const AccessEvent& access,
                                              Space space) {
    const Region& recent = this->recent(access.address, space);
    return recent.contains(access) ? recent : find_anew(thread, access, space);
}

/// Whether a word is loaded that is like one which the warp has loaded at this line. Then nothing
/// is left to do.
inline bool Detector::is_usual_load(unsigned thread, const char* word, LocationId origin) {
    const LoadingLine& line = loading_line(origin);
    const auto offset = static_cast<size_t>(word - line.begin);
    if (line.origin != origin || offset >= line.bytes || offset % 4 != 0) {
        return false;
    }
    uint32_t value = 0;
    if (line.may_be_unwritten) {
        std::memcpy(&value, word, sizeof value);
    }
    Cell& cell = line.cells[offset / 4];
    return value != ~uint32_t{0} && cell.apart == 0 &&
           races_.recall(cell, {thread, origin, line.shared});
}

} // namespace flash::simt
