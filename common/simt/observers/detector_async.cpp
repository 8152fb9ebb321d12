// The detector's part for TMA, wgmma and their fences.
#include <algorithm>

#include "common/simt/observers/detector.hpp"

namespace flash::simt {
namespace {

/// Pieces of a run of bytes, each at a multiple of its size.
template <class Use> void for_each_piece(const char* address, unsigned bytes, Use use) {
    while (bytes > 0) {
        const unsigned size = reinterpret_cast<size_t>(address) % 4 == 0 && bytes >= 4 ? 4 : 2;
        use(address, size);
        address += size;
        bytes -= size;
    }
}

} // namespace

void Detector::make_mbarrier(unsigned thread, const void* barrier) {
    BarrierClocks& made = barrier_clocks_[barrier] = {};
    made.channel = channels_++;
    made.maker = thread;
    made.progress = channels_++;
    progress_channels_.push_back(made.progress);
    made.asked.resize(block_.thread_count());
    made.over.resize(block_.thread_count());
}

/// A wait by parity takes phase k for over until the next phase ends: then the parity is that of
/// before, and who comes as late as that waits for one phase more, or for ever. So a wait for phase
/// k must come before the end of phase k + 1, in every order of the threads. And the end of phase
/// k - 1 must come before the wait, or it might take an older phase for its own.
void Detector::await(unsigned thread, const void* barrier, int64_t phase, SourceLocation location) {
    BarrierClocks& clocks = barrier_clocks_[barrier];
    clocks.asked[thread] = {phase, 0, location};
    if (phase < 1) {
        return; // there is none before
    }
    const Phase& before = clocks.ended[phase < clocks.phases ? 1 : 0];
    const Clocks& known = std::as_const(races_).clocks();
    if (!known.knows_end(thread, clocks.progress, static_cast<uint32_t>(phase - 1)) &&
        !knows_arrivals(thread, before)) {
        report_missed_phase(thread, location, before.last);
    }
}

/// Whether `thread` knows of all that ended a phase, though it may not have waited for that.
bool Detector::knows_arrivals(unsigned thread, const Phase& phase) const {
    return !phase.with_copies && std::ranges::all_of(phase.arrivals, [&](const Arrival& one) {
        return races_.clocks().knows_end(thread, step_channels_[one.thread], one.number - 1);
    });
}

/// A phase ends: who has waited for the one before, must have been heard of by those who end this.
void Detector::check_waits(const BarrierClocks& barrier) {
    for (unsigned thread = 0; thread < barrier.over.size(); ++thread) {
        const Wait& wait = barrier.over[thread];
        if (wait.number != 0 && wait.phase == int64_t{barrier.phases} - 1 &&
            !is_above(barrier.gathered.known, step_channels_[thread], wait.number - 1)) {
            report_missed_phase(thread, wait.location, barrier.phase.last);
        }
    }
}

uint32_t Detector::step_at_mbarrier(unsigned thread) {
    uint32_t& channel = step_channels_[thread];
    if (channel == 0) {
        progress_channels_.push_back(channel_in(channel));
    }
    races_.clocks().learn_ends(thread, channel, ++steps_[thread]);
    return steps_[thread];
}

void Detector::report_missed_phase(unsigned thread, SourceLocation wait, const Arrival& end) {
    block_.report(
        {FaultKind::missed_phase,
         "a wait at an mbarrier may come too late: nothing orders it before the end of the next "
         "phase, and then the parity that it waits for is back",
         block_.place(thread, "waits", LocationId::of(wait)),
         block_.place(end.thread, "ends the next phase by its arrival",
                      LocationId::of(end.location)),
         "who arrives for several threads must meet them after their waits (__syncwarp, for a "
         "warp), or each of them must arrive; or is it the wrong parity?"});
}

void Detector::fence_proxy(unsigned thread) {
    races_.clocks().fence(thread);
    fence_mbarriers(thread);
}

void Detector::fence_mbarriers(unsigned thread) {
    for (auto& [address, clocks] : barrier_clocks_) {
        clocks.fenced = clocks.fenced || clocks.maker == thread;
    }
}

uint32_t Detector::begin_work(const AsyncWork& work, uint32_t channel, uint32_t number,
                              EngineWork::Kind kind) {
    races_.begin_work(work.number, {work.operation, work.thread, LocationId::of(work.location),
                                    channel, number, kind});
    return work.number;
}

/// What TMA does to the tensor counts as done by the thread that starts it.
void Detector::check_global(const AsyncWork& work, const Chunk& chunk, AccessKind kind) {
    for_each_piece(chunk.global, chunk.bytes, [&](const char* address, unsigned bytes) {
        check(work.thread, {address, bytes, kind, LocationId::of(work.location)}, Space::global);
    });
}

void Detector::start_load(const BulkLoad& load) {
    BarrierClocks& clocks = barrier_clocks_[load.mbarrier];
    if (!clocks.fenced) {
        block_.stop({FaultKind::missing_fence,
                     "a tma_load for an mbarrier that TMA does not know about",
                     block_.here("starts it", load.work.location),
                     "the thread that initialises it must call fence_mbarrier_init() before the "
                     "next barrier"});
    }
    // the phase does not end before this moment, and perhaps long after
    clocks.phase.with_copies = true;
    std::as_const(races_).clocks().tell(load.work.thread, progress_channels_, clocks.gathered);
    actor_ = &load.work;
    for (const Chunk& chunk : load.inside) {
        check_global(load.work, chunk, AccessKind::load);
    }
    const uint32_t work =
        begin_work(load.work, clocks.channel, EngineWork::not_yet, EngineWork::loads);
    const AccessEvent all{load.shared, load.bytes, AccessKind::store,
                          LocationId::of(load.work.location)};
    const Region& region = find(load.work.thread, all, Space::shared);
    const Access now = races_.now(load.work.thread, all.origin, AccessKind::store);
    const Clocks::Knowledge& own = races_.clocks().common(load.work.thread, 1);
    CellMemo memo;
    for (unsigned offset = 0; offset < load.bytes; offset += 16) {
        const AccessEvent access{load.shared + offset, 16, AccessKind::store, all.origin};
        region.visit(access, memo, [&](Cell& cell) {
            if (const RaceDetector::Race race = races_.race(cell, AccessKind::store, now, true);
                race.other) {
                stop_race(load.work.thread, access, region, race);
            }
            if (races_.of_this_block(races_.writer(cell, true)) && !races_.is_fenced(own, cell)) {
                stop_unfenced(access, region, cell);
            }
            races_.write_by(work, cell);
        });
    }
    actor_ = nullptr;
}

void Detector::land(const BulkLoad& load) {
    races_.end_work(load.work.number, barrier_clocks_[load.mbarrier].phases);
}

void Detector::start_store(const BulkStore& store) {
    actor_ = &store.work;
    const unsigned thread = store.work.thread;
    const AsyncReaders readers{
        thread, 1,
        begin_work(store.work, channel_in(store_channels_[thread]), store.group, EngineWork::reads),
        1, races_.clocks().common(thread, 1)};
    CellMemo memo;
    for (const Chunk& chunk : store.chunks) {
        if (store.adds && !semaphores_.empty()) {
            check_turn(store.work, chunk);
        }
        check_global(store.work, chunk, store.adds ? AccessKind::atomic : AccessKind::store);
        for_each_piece(chunk.shared, chunk.bytes, [&](const char* address, unsigned bytes) {
            read_by(readers,
                    {address, bytes, AccessKind::load, LocationId::of(store.work.location)}, memo);
        });
    }
    actor_ = nullptr;
}

/// In a kernel whose blocks take turns, every sum has an order.
void Detector::check_turn(const AsyncWork& work, const Chunk& chunk) {
    const AccessEvent access{chunk.global, chunk.bytes, AccessKind::atomic,
                             LocationId::of(work.location)};
    const Region& region = find(work.thread, access, Space::global);
    region.visit(access, [&](Cell& cell) {
        if (const std::optional<Access> before = races_.unordered_addition(cell)) {
            block_.stop({FaultKind::race,
                         "race: the order of a sum differs from run to run, " + in(access, region),
                         action_of_actor(work.thread, access, " that adds to it"),
                         action_of(*before, races_.now(work.thread, access.origin, access.kind),
                                   "has added to it"),
                         "its blocks take turns by semaphores, but no semaphore orders these two"});
        }
    });
}

void Detector::add_to_semaphore(unsigned, const unsigned* semaphore) {
    std::vector<RaceDetector::Blocks>& after = semaphores_[semaphore];
    after.push_back(races_.handed_on(after.empty() ? RaceDetector::Blocks() : after.back()));
}

void Detector::pass_semaphore(unsigned, const unsigned* semaphore, unsigned value) {
    const auto found = semaphores_.find(semaphore);
    if (value > 0 && found != semaphores_.end()) {
        races_.learn(found->second[std::min<size_t>(value, found->second.size()) - 1]);
    }
}

void Detector::wait_for_stores(unsigned thread, uint32_t groups) {
    races_.clocks().learn_ends(thread, channel_in(store_channels_[thread]), groups);
}

/// What threads have TMA or their tensor cores read.
void Detector::read_by(const AsyncReaders& readers, const AccessEvent& access, CellMemo& memo) {
    const Region& region = find(readers.first, access, Space::shared);
    region.visit(access, memo, [&](Cell& cell) {
        if (!races_.of_this_block(races_.writer(cell, true))) {
            note_unwritten(readers.first, access, region);
        } else {
            if (!races_.knows_write(readers.known, cell) || races_.has_atomics(cell, true)) {
                for (unsigned thread = readers.first; thread < readers.first + readers.threads;
                     ++thread) {
                    const Access now = races_.now(thread, access.origin, AccessKind::load);
                    if (const RaceDetector::Race race =
                            races_.race(cell, AccessKind::load, now, true);
                        race.other) {
                        stop_race(thread, access, region, race); // the one who does not know
                    }
                }
            }
            if (!races_.is_fenced(readers.known, cell)) {
                stop_unfenced(access, region, cell);
            }
        }
        races_.read_by(readers.work, readers.works, cell);
    });
}

/// What the four warps of a warpgroup have their tensor cores read, each as a work of its own.
void Detector::read_by_warpgroup(const Wgmma& product, const std::vector<OperandRow>& rows) {
    const unsigned first = product.work.thread;
    const AsyncReaders readers{first, warpgroup_threads, product.work.number, 4,
                               races_.clocks().common(first, warpgroup_threads)};
    CellMemo memo;
    for (const OperandRow row : rows) {
        read_by(readers, {row, 16, AccessKind::load, LocationId::of(product.work.location)}, memo);
    }
}

void Detector::start_wgmma(const Wgmma& product) {
    actor_ = &product.work;
    const unsigned first = product.work.thread;
    for (unsigned warp = first / 32; warp < first / 32 + 4; ++warp) {
        meet(CollectiveKind::collective, warp, full_mask, product.work.location);
    }
    for (unsigned warp = 0; warp < 4; ++warp) { // each waits for itself, so each has its own work
        AsyncWork own = product.work;
        own.number += warp;
        own.thread += 32 * warp;
        begin_work(own, channel_in(wgmma_channels_[own.thread / 32]), product.group,
                   EngineWork::reads);
    }
    for (unsigned i = 0; i < warpgroup_threads; ++i) {
        begin_registers(product, i, product.work.number + i / 32);
    }
    // Each warp may read all of A and B: PTX does not promise that a warp reads 16 rows of A alone.
    for (const std::vector<OperandRow>& rows : product.A) {
        read_by_warpgroup(product, rows);
    }
    read_by_warpgroup(product, product.B);
    actor_ = nullptr;
}

/// The accumulators of one thread of the warpgroup are the product's from here on.
void Detector::begin_registers(const Wgmma& product, unsigned thread_of_group, uint32_t work) {
    const unsigned thread = product.work.thread + thread_of_group;
    OwnRegisters& own = registers_[thread];
    const auto* const begin = reinterpret_cast<const char*>(product.C[thread_of_group]);
    const size_t bytes = product.columns / 2 * sizeof(float);
    const auto known = std::ranges::find(own.in_flight, begin, &InFlight::begin);
    const auto* const fragment = reinterpret_cast<const char*>(product.registers[thread_of_group]);
    const auto touched = std::ranges::find_if(own.touched, [&](const char* address) {
        return (known == own.in_flight.end() && address >= begin && address < begin + bytes) ||
               (fragment != nullptr && address >= fragment && address < fragment + 16);
    });
    if (!own.fenced || touched != own.touched.end()) {
        block_.stop(
            Fault(FaultKind::missing_fence,
                  own.fenced ? "a wgmma uses registers that were touched since the last wgmma_fence"
                             : "a wgmma without a wgmma_fence before it",
                  block_.place(thread, "starts it", LocationId::of(product.work.location)),
                  "call wgmma_fence() after the last access to the registers and before the first "
                  "wgmma that uses them")
                .named("wgmma_in_flight"));
    }
    if (known != own.in_flight.end()) {
        *known = {begin, bytes, product.group, work, true};
    } else {
        own.in_flight.insert(own.in_flight.begin(), {begin, bytes, product.group, work, true});
    }
    if (fragment == nullptr) {
        return;
    }
    InFlight& last = own.in_flight.back();
    if (!last.of_C && last.group == product.group && last.begin + last.bytes == fragment) {
        last.bytes += 16; // A lies in one array, as a rule
    } else {
        own.in_flight.push_back({fragment, 16, product.group, work, false});
    }
}

void Detector::wait_for_wgmma(unsigned thread, uint32_t groups) {
    races_.clocks().learn_ends(thread, channel_in(wgmma_channels_[thread / 32]), groups);
    std::erase_if(registers_[thread].in_flight,
                  [&](const InFlight& product) { return product.group < groups; });
}

void Detector::fence_wgmma(unsigned thread) {
    registers_[thread].fenced = true;
    block_.thread(thread).locals_observed = true; // they may be registers that a product uses
    registers_[thread].touched.clear();
}

/// Are they registers of a product under way? Nobody may read or write them, those of A included.
void Detector::access_local(unsigned thread, const AccessEvent& access) {
    OwnRegisters& own = registers_[thread];
    own.touched.push_back(access.address);
    for (const InFlight& product : own.in_flight) {
        if (access.address + access.bytes > product.begin &&
            access.address < product.begin + product.bytes) {
            block_.stop(
                {FaultKind::wgmma_in_flight,
                 std::string(product.of_C ? "accumulators" : "registers of A") +
                     " of a wgmma are touched before its wait",
                 action_of(thread, access),
                 block_.place(thread, "has started the wgmma", races_.works()[product.work].origin),
                 "call wgmma_wait for its group first"});
        }
    }
}

bool Detector::is_in_flight(const EngineWork& work) const {
    for (unsigned thread = 0; thread < block_.thread_count(); ++thread) {
        if (races_.clocks().knows_end(thread, work.channel, work.number)) {
            return false;
        }
    }
    return true;
}

/// A load that nobody has waited for.
std::optional<Fault> Detector::load_left_behind() {
    for (const EngineWork& work : races_.works()) {
        if (work.kind == EngineWork::loads && is_in_flight(work)) {
            return Fault(FaultKind::async_copy_in_flight,
                         "a block ends before a tma_load of it has landed", action_of(work, ""),
                         "the shared memory may belong to another block by then: wait at its "
                         "mbarrier")
                .named("left_too_early");
        }
    }
    return std::nullopt;
}

void Detector::stop_async_race(unsigned thread, const AccessEvent& access, const Region& region,
                               const RaceDetector::Race& race) const {
    const bool reads = access.kind == AccessKind::load;
    const bool lands = races_.is_work(*race.other, EngineWork::loads);
    const bool is_read = races_.is_work(*race.other, EngineWork::reads);
    FaultKind kind = FaultKind::race;
    std::string summary, hint;
    if (lands && reads) {
        kind = FaultKind::async_copy_in_flight;
        summary =
            "data of a tma_load is used before its mbarrier has signalled that the load has landed";
        hint = "a thread that uses the data must wait for that phase of the mbarrier, or meet one "
               "that has waited";
    } else if (lands) {
        summary = "race: a thread writes where a tma_load may still be writing";
        hint = "the next thread that writes there must first wait for the load at its mbarrier";
    } else if (is_read) {
        const std::string reader = races_.work(*race.other).operation;
        summary = "race: overwritten while a " + reader + " may still read it";
        hint =
            reader == "wgmma"
                ? "after wgmma_wait, tell the thread that writes (by mbarrier_arrive or a barrier)"
                : "after bulk_wait_read, tell the thread that writes (by a barrier)";
    } else if (reads) {
        summary = std::string("race: read by a ") + actor_->operation +
                  ", and nothing orders that after the write";
        hint = "the thread that wrote must call fence_proxy_async(), and a barrier must follow";
    } else {
        summary = "race: overwritten by a tma_load while others may still use it";
        hint = "the threads that use the data must say when they are done, by mbarrier_arrive or a "
               "barrier";
    }
    block_.stop(Fault(kind, summary + ", " + in(access, region),
                      action_of_actor(thread, access, reads ? " that reads it" : " that writes it"),
                      action_of(race, thread, access), hint)
                    .named(lands && reads ? "tile_in_flight" : "race_with_engine"));
}

void Detector::stop_unfenced(const AccessEvent& access, const Region& region,
                             const Cell& cell) const {
    const Access write = races_.writer(cell, true);
    block_.stop({FaultKind::missing_fence,
                 std::string("a fence is missing between what a thread writes and a ") +
                     actor_->operation + ", " + in(access, region),
                 action_of_actor(actor_->thread, access, ""),
                 action_of(write, write, "has written it"),
                 "TMA and wgmma see what threads write after a fence_proxy_async(): the thread "
                 "that wrote calls it before the barrier, or the one that starts them behind it"});
}

} // namespace flash::simt
