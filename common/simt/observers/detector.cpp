#include "common/simt/observers/detector.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/simt/machine/device_heap.hpp"

namespace flash::simt {
namespace {

const char* verb(AccessKind kind) {
    return kind == AccessKind::load    ? "reads"
           : kind == AccessKind::store ? "writes"
                                       : "atomically updates";
}

std::string quantity(const AccessEvent& access) { return plural(access.bytes, "byte"); }

/// Fresh memory holds 0xff. So whatever reads other bytes reads what was written.
bool may_be_unwritten(const AccessEvent& access) {
    constexpr uint64_t fresh = ~uint64_t{0};
    if (access.bytes < 4) {
        return std::memcmp(access.address, &fresh, access.bytes) == 0;
    }
    for (unsigned offset = 0; offset < access.bytes; offset += 4) {
        if (std::memcmp(access.address + offset, &fresh, 4) == 0) {
            return true;
        }
    }
    return false;
}

} // namespace

Detector::Detector(Block& block, GlobalPast& past)
    : block_(block), races_(past, block), executable_(executable()) {}

void Detector::begin_launch() {
    doubted_.clear();
    polling_.clear();
    read_before_cas_.clear();
    semaphores_.clear();
    recent_ = {};
    variables_.assign(1, {});
    variable_of_word_.assign(block_.shared().segment().bytes / 4 + 1, 0);
    loading_lines_ = {};
}

void Detector::begin_block() {
    unwritten_.reset();
    races_.begin_block(static_cast<unsigned>(volume(block_.launch().block)), block_.index());
    volatile_loads_.clear();
    volatile_reads_.clear();
    plain_loads_.clear();
    last_barrier_ = {};
    barrier_clocks_.clear();
    registers_.assign(block_.thread_count(), {});
    channels_ = block_.thread_count();
    copy_channels_.assign(block_.thread_count(), 0);
    store_channels_.assign(block_.thread_count(), 0);
    step_channels_.assign(block_.thread_count(), 0);
    steps_.assign(block_.thread_count(), 0);
    progress_channels_.clear();
    warps_with_news_ = 0;
    wgmma_channels_ = {};
    actor_ = nullptr;
}

std::optional<Fault> Detector::end_block() {
    if (!unwritten_) {
        return load_left_behind();
    }
    return std::exchange(unwritten_, std::nullopt);
}

void Detector::barrier(SourceLocation location) {
    last_barrier_ = LocationId::of(location);
    volatile_reads_.clear();
    if (unwritten_) {
        block_.report(*std::exchange(unwritten_, std::nullopt));
    }
    races_.barrier();
}

void Detector::meet(CollectiveKind meeting, unsigned warp, uint32_t lanes, SourceLocation) {
    if (meeting == CollectiveKind::sync) { // CUDA promises order for nothing else
        races_.meet(warp, lanes);
    } else if ((warps_with_news_ >> warp & 1) != 0) { // but the lanes have waited for each other
        races_.clocks().share(warp, lanes, progress_channels_);
    }
    if (lanes == full_mask) {
        warps_with_news_ &= ~(1u << warp);
    }
}

ThreadAction Detector::action_of(const Access& access, const Access& now,
                                 const char* action) const {
    if (access.engine != 0) {
        const EngineWork& work = races_.work(access);
        return work.kind == EngineWork::copies
                   ? block_.place(work.thread, action, work.origin)
                   : action_of(work, work.kind == EngineWork::loads ? " that writes it"
                                                                    : " that reads it");
    }
    Access other = access;
    if (access.warp == now.warp && access.epoch == now.epoch && access.lanes != now.lanes) {
        other.lanes &= ~now.lanes;
    }
    return {dim3(races_.index_of(access)), dim3(element(block_.launch().block, thread_of(other))),
            action, LocationId::from(access.origin)};
}

ThreadAction Detector::action_of(const RaceDetector::Race& race, unsigned thread,
                                 const AccessEvent& access) const {
    return action_of(*race.other, races_.now(thread, access.origin, access.kind, access.scope),
                     race.kind == AccessKind::store  ? "has written it"
                     : race.kind == AccessKind::load ? "has read it"
                                                     : "has updated it atomically");
}

ThreadAction Detector::action_of(unsigned thread, const AccessEvent& access) const {
    return block_.place(thread, std::string(verb(access.kind)) + " " + quantity(access),
                        access.origin);
}

ThreadAction Detector::action_of(const EngineWork& work, const char* what) const {
    return block_.place(work.thread, std::string("starts the ") + work.operation + what,
                        work.origin);
}

/// Of an access in whose place a thread has something else do it.
ThreadAction Detector::action_of_actor(unsigned thread, const AccessEvent& access,
                                       const char* what) const {
    return actor_ == nullptr
               ? action_of(thread, access)
               : block_.place(thread, std::string("starts the ") + actor_->operation + what,
                              access.origin);
}

std::string Detector::in(const AccessEvent& access, const Region& region) {
    return "at byte " + std::to_string(access.address - region.begin) + " of " +
           std::string(region.name);
}

/// Not a fault yet: if another thread writes there before the next barrier, it is a race, and that
/// says more.
void Detector::note_unwritten(unsigned thread, const AccessEvent& access, const Region& region) {
    if (!unwritten_) {
        unwritten_.emplace(FaultKind::uninitialised,
                           "read of shared memory that no thread of the block has written, " +
                               in(access, region),
                           action_of_actor(thread, access, " that reads it"));
    }
}

void Detector::stop_outside(unsigned thread, const AccessEvent& access,
                            const Region& region) const {
    std::string summary = "out of bounds: ";
    const std::optional<Variable> variable = variable_at(access.address);
    if (variable && variable->kind == Variable::host) {
        summary += quantity(access) + " of " + describe_host_memory(access.address) +
                   ", which is no memory of the device";
    } else if (region.begin == nullptr) {
        summary += std::string(region.name) + " at this address";
    } else {
        const bool before = access.address < region.begin;
        const auto distance = static_cast<size_t>(before ? region.begin - access.address
                                                         : access.address - region.begin);
        summary += quantity(access) + ", " +
                   (before                    ? plural(distance, "byte") + " before the start of "
                    : distance < region.bytes ? "across the end of "
                    : distance == region.bytes
                        ? "just past the end of "
                        : plural(distance - region.bytes, "byte") + " past the end of ") +
                   std::string(region.name) + " (" + plural(region.bytes, "byte") + ")";
    }
    block_.stop({FaultKind::out_of_bounds, summary, action_of(thread, access)});
}

void Detector::stop_race(unsigned thread, const AccessEvent& access, const Region& region,
                         const RaceDetector::Race& race) {
    unwritten_.reset();
    const bool same_block = races_.of_this_block(*race.other);
    if (same_block && races_.is_work(*race.other, EngineWork::copies)) {
        const EngineWork& copy = races_.work(*race.other);
        // its own: only others have waited for that
        if (copy.thread == thread || is_in_flight(copy)) {
            block_.stop({FaultKind::async_copy_in_flight,
                         "data of a cp.async is used before its wait, " + in(access, region),
                         action_of(thread, access),
                         block_.place(copy.thread, "starts the copy", copy.origin),
                         "the thread that copies must wait for its group (cp_async_wait), then a "
                         "barrier lets the "
                         "others see it"});
        }
    } else if (same_block && race.other->engine != 0) {
        stop_async_race(thread, access, region, race);
    }
    if (actor_ != nullptr && block_.space_of(access.address) == Space::shared) {
        stop_async_race(thread, access, region, race);
    }
    if (race.kind == AccessKind::atomic && access.kind == AccessKind::atomic) {
        block_.stop({FaultKind::race,
                     "race: two blocks, and an atomic operation that is atomic within its block, " +
                         in(access, region),
                     action_of(thread, access), action_of(race, thread, access),
                     "what threads of several blocks update wants the operation without _block"});
    }
    block_.stop(race_of_threads(thread, access, region, race));
}

Fault Detector::race_of_threads(unsigned thread, const AccessEvent& access, const Region& region,
                                const RaceDetector::Race& race) const {
    const bool same_block = races_.of_this_block(*race.other);
    const bool same_warp = same_block && race.other->warp == thread / 32;
    Fault fault(
        FaultKind::race, "race: two threads, " + in(access, region), action_of(thread, access),
        action_of(race, thread, access),
        same_warp ? "they are lanes of one warp; a __syncwarp() or __syncthreads() between the "
                    "two would order them"
        : same_block
            ? "a __syncthreads() between the two would order them"
            : "nothing orders threads of different blocks; only atomic operations may meet");
    fault.since = same_block ? last_barrier_ : LocationId();
    return fault;
}

/// Of two volatile accesses, which may meet by the model; but the one reckons with the other's
/// being done.
Fault Detector::race_in_warp(unsigned thread, const AccessEvent& access, const Region& region,
                             const RaceDetector::Race& race) const {
    Fault fault = race_of_threads(thread, access, region, race);
    fault.summary =
        "race: two lanes of one warp, and volatile orders nothing, " + in(access, region);
    fault.hint = "since Volta lanes run independently; a __syncwarp() between the two would order "
                 "them";
    return fault;
}

/// Who reads a place again and again waits for it to change.
void Detector::note_volatile_load(unsigned thread, const AccessEvent& access) {
    if (!volatile_reads_.emplace(thread, access.origin, access.address).second) {
        polling_.insert(access.origin);
    }
}

void Detector::warn_of_plain_read(Fault race) {
    const std::string place = race.summary.substr(race.summary.find(','));
    block_.warn({FaultKind::read_before_cas,
                 "two threads, and a plain read of what others update atomically" + place,
                 race.where, race.other,
                 "an atomicCAS checks the value, so that an old one does no harm; a volatile read "
                 "would be no race"});
}

/// A thread comes to an atomicCAS: what it has read there by plain loads is checked by it.
void Detector::note_comparison(unsigned thread, const AccessEvent& access, const Cell& cell,
                               const Access& now, bool shared) {
    for (const LocationId load : races_.own_loads(cell, now, shared)) {
        read_before_cas_.insert(load);
    }
    std::erase_if(plain_loads_, [&](PlainLoad& load) {
        const bool checked = load.thread == thread && load.address == access.address;
        if (checked) {
            read_before_cas_.insert(load.race.where.origin);
            warn_of_plain_read(std::move(load.race));
        }
        return checked;
    });
}

/// A plain load and an atomic operation of others, in either order: whether an atomicCAS checks
/// what was read. Where that may still come, the race waits for it.
bool Detector::may_be_checked(unsigned thread, const AccessEvent& access, const Region& region,
                              const RaceDetector::Race& race) {
    const bool reads = access.kind == AccessKind::load && access.scope == Scope::weak &&
                       race.kind == AccessKind::atomic;
    const bool was_read = access.kind == AccessKind::atomic && race.kind == AccessKind::load &&
                          race.other->engine == 0;
    if (!(reads || was_read) || actor_ != nullptr) {
        return false;
    }
    const LocationId load = reads ? access.origin : LocationId::from(race.other->origin);
    if (read_before_cas_.contains(load)) {
        warn_of_plain_read(race_of_threads(thread, access, region, race));
        return true;
    }
    const auto is_same = [&](const PlainLoad& one) {
        return one.thread == thread && one.address == access.address;
    };
    if (!reads || std::ranges::any_of(plain_loads_, is_same)) {
        return false;
    }
    plain_loads_.push_back({thread, access.address, race_of_threads(thread, access, region, race)});
    return true;
}

/// Whether it is a race of two plain writes by threads, which may write the same value.
bool Detector::is_of_two_writes(const AccessEvent& access, const RaceDetector::Race& race) const {
    return race.other && race.doubt == RaceDetector::Race::no && race.kind == AccessKind::store &&
           race.other->engine == 0 && access.kind == AccessKind::store && actor_ == nullptr &&
           block_.checks_access();
}

Detector::Region Detector::look_up(const AccessEvent& access, Space space) {
    if (space == Space::global) {
        const Buffer* const buffer = buffer_around(access.address);
        if (buffer == nullptr) {
            return {nullptr, 0, "no buffer of global memory is", nullptr};
        }
        const DeviceMemory* const memory =
            arena().contains(access.address) ? memory_around(access.address) : nullptr;
        return {buffer->begin,
                buffer->bytes(),
                buffer->name,
                races_.past().shadow_of(*buffer),
                memory == nullptr ? nullptr : memory->written(),
                buffer->constant};
    }
    const SharedMemory& shared = block_.shared();
    if (!shared.is_static(access.address)) {
        return {shared.dynamic(), shared.dynamic_bytes(), "the dynamic shared memory",
                &races_.dynamic_shadow()};
    }
    const auto offset = static_cast<size_t>(access.address - shared.segment().begin);
    if (const SharedVariable* const variable = shared_variable_near(block_.kernel(), offset)) {
        return {shared.segment().begin + variable->offset, variable->bytes, variable->name,
                &races_.static_shadow()};
    }
    return {nullptr, 0, "no __shared__ variable of the kernel is", nullptr};
}

/// Keeps what it lies in, for those that come.
const Detector::Region& Detector::find_anew(unsigned thread, const AccessEvent& access,
                                            Space space) {
    const Region found = look_up(access, space);
    if (!found.contains(access)) {
        stop_outside(thread, access, found);
    }
    const SharedMemory& shared = block_.shared();
    if (space == Space::global || !shared.is_static(access.address)) {
        return recent_[space == Space::global ? (reinterpret_cast<size_t>(access.address) >> 22) % 7
                                              : 7] = found;
    }
    const auto first = static_cast<size_t>(found.begin - shared.segment().begin);
    auto known = std::ranges::find(variables_, found.begin, &Region::begin);
    if (known == variables_.end()) {
        known = variables_.insert(known, found);
    }
    std::fill(variable_of_word_.begin() + static_cast<ptrdiff_t>(first / 4),
              variable_of_word_.begin() + static_cast<ptrdiff_t>((first + found.bytes + 3) / 4),
              static_cast<uint16_t>(known - variables_.begin()));
    return *known;
}

void Detector::access(unsigned thread, const AccessEvent& access) {
    const Space space = block_.space_of(access.address);
    if (space == Space::elsewhere) {
        check_elsewhere(thread, access);
        return;
    }
    if (access.kind == AccessKind::load && access.scope == Scope::system) {
        note_volatile_load(thread, access);
    }
    const bool weak = access.scope == Scope::weak;
    const bool is_usual =
        (weak && access.kind == AccessKind::load && is_recalled(thread, access, space)) ||
        (weak && access.kind == AccessKind::store && is_written_anew(thread, access, space));
    if (!is_usual) {
        check(thread, access, space);
    }
}

void Detector::load_matrices(std::span<const MatrixRow> rows, SourceLocation location) {
    for (const MatrixRow& row : rows) {
        access(row.thread, {static_cast<const char*>(row.address), 16, AccessKind::load,
                            LocationId::of(location)});
    }
}

/// The cells of an aligned access to the memory of one before.
inline std::span<Cell> Detector::known_cells(const Region& region, const AccessEvent& access) {
    return region.contains(access) &&
                   (reinterpret_cast<size_t>(access.address) & (access.bytes - 1)) == 0
               ? region.shadow->whole(access.address, access.bytes)
               : std::span<Cell>();
}

/// Most stores: to cells that nobody has touched since a write that is over.
inline bool Detector::is_written_anew(unsigned thread, const AccessEvent& access, Space space) {
    const bool shared = space == Space::shared;
    const Region& region = recent(access.address, space);
    const std::span<Cell> cells = known_cells(region, access);
    if (cells.empty() || region.constant ||
        !std::ranges::all_of(cells, [&](Cell cell) { return races_.is_over(cell, shared); })) {
        return false;
    }
    const uint32_t number = races_.number_of_write(thread, access.origin, shared);
    if (number == 0) {
        return false;
    }
    if (region.written != nullptr) {
        check_written(thread, access, region);
    }
    std::ranges::fill(cells, Cell{.write = number});
    return true;
}

/// Most loads: each cell is like one that the warp has read at this line.
inline bool Detector::is_recalled(unsigned thread, const AccessEvent& access, Space space) {
    const Region& region = recent(access.address, space);
    const std::span<Cell> cells = known_cells(region, access);
    if (cells.empty() || (region.written != nullptr && may_be_unwritten(access))) {
        return false;
    }
    const bool shared = space == Space::shared;
    if (access.bytes == 4 && reinterpret_cast<size_t>(region.begin) % 4 == 0) {
        loading_line(access.origin) = {access.origin,
                                       shared,
                                       region.written != nullptr,
                                       region.begin,
                                       region.bytes & ~size_t{3},
                                       region.shadow->cell(region.begin)};
    }
    const RaceDetector::LoadKey load(thread, access.origin, shared);
    return std::ranges::all_of(cells, [&](Cell& cell) { return races_.recall(cell, load); });
}

/// An access to shared or global memory.
void Detector::check(unsigned thread, const AccessEvent& access, Space space) {
    const Region& region = find(thread, access, space);
    if (reinterpret_cast<size_t>(access.address) % access.bytes != 0) {
        block_.stop({FaultKind::misaligned,
                     "misaligned: an access of " + quantity(access) + " " + in(access, region) +
                         ", and its address is no multiple of " + std::to_string(access.bytes),
                     action_of(thread, access)});
    }
    if (region.written != nullptr) {
        check_written(thread, access, region);
    }
    if (region.constant && access.kind != AccessKind::load) {
        block_.stop({FaultKind::invalid_access,
                     "constant memory is written by a kernel, " + in(access, region),
                     action_of(thread, access)});
    }
    const bool shared = space == Space::shared;
    bool finds_nothing = false;
    region.visit(access, [&](Cell& cell) {
        finds_nothing = check_cell(thread, access, region, shared, cell) || finds_nothing;
    });
    if (finds_nothing && options().keep_going && block_.checks_access()) {
        throw FaultyAccess(); // it reads zero
    }
}

/// Whether what nobody wrote is a gap between the members of a struct, which is copied as a whole.
bool Detector::is_padding(unsigned thread, const AccessEvent& access, const AccessEvent& part,
                          const Region& region) const {
    const std::span<const char> copied = block_.thread(thread).copied;
    const std::span<const char> whole =
        copied.empty() ? std::span(access.address, access.bytes) : copied;
    const bool is_all = whole.size() == region.bytes && whole.data() == region.begin;
    return whole.data() >= region.begin &&
           whole.data() + whole.size() <= region.begin + region.bytes &&
           region.written->any(whole.data(), whole.size()) &&
           (is_all || region.written->is_padding(part.address, part.bytes));
}

/// Of global memory: reads only what the host or a kernel has written.
void Detector::check_written(unsigned thread, const AccessEvent& access, const Region& region) {
    const bool may_be_fresh = may_be_unwritten(access);
    if ((access.kind != AccessKind::load || may_be_fresh) &&
        region.written->any_closed(access.address, access.bytes)) {
        block_.stop({FaultKind::out_of_bounds,
                     "out of bounds: " + quantity(access) + ", " + outside_of_heap(access.address),
                     action_of(thread, access)});
    }
    if (access.reads() && may_be_fresh) {
        const unsigned step = std::min(access.bytes, 4u);
        for (unsigned offset = 0; offset < access.bytes; offset += step) {
            const AccessEvent part{access.address + offset, step, access.kind, access.origin};
            if (may_be_unwritten(part) && !region.written->all(part.address, step) &&
                !is_padding(thread, access, part, region)) {
                block_.stop({FaultKind::uninitialised,
                             "read of global memory that neither the host nor a kernel has "
                             "written, " +
                                 in(part, region),
                             action_of_actor(thread, access, " that reads it")});
            }
        }
    }
    if (access.kind != AccessKind::load) {
        region.written->mark(access.address, access.bytes);
    }
}

/// Whether it reads what nobody has written.
bool Detector::check_cell(unsigned thread, const AccessEvent& access, const Region& region,
                          bool shared, Cell& cell) {
    const RaceDetector::LoadKey load(thread, access.origin, shared);
    const bool weak_load = access.kind == AccessKind::load && access.scope == Scope::weak;
    if (weak_load && races_.recall(cell, load)) {
        return false;
    }
    const bool unwritten = shared && !races_.of_this_block(races_.writer(cell, true));
    if (unwritten && access.reads()) {
        note_unwritten(thread, access, region);
    }
    const Access now = races_.now(thread, access.origin, access.kind, access.scope);
    if (access.compares()) {
        note_comparison(thread, access, cell, now, shared);
    }
    RaceDetector::Race race = races_.race(cell, access.kind, now, shared);
    if (is_of_two_writes(access, race)) {
        block_.suspect(race_of_threads(thread, access, region, race), access);
        race = races_.race_with_readers(cell, access.kind, now, shared, {});
    }
    if (race.other && race.doubt == RaceDetector::Race::no) {
        if (!may_be_checked(thread, access, region, race)) {
            stop_race(thread, access, region, race);
        }
    } else if (race.other) {
        doubt(thread, access, region, race);
    }
    const Cell before = cell;
    races_.remember(cell, access.kind, now, shared);
    if (weak_load && !race.other && !unwritten && !races_.has_atomics(cell, shared)) {
        races_.learn(before, cell, load, now);
    }
    return unwritten && access.reads();
}

/// A conflict that nothing orders, and that is no race for all that.
void Detector::doubt(unsigned thread, const AccessEvent& access, const Region& region,
                     const RaceDetector::Race& race) {
    const bool same_block = races_.of_this_block(*race.other);
    const bool is_flag = race.kind == AccessKind::load
                             ? looks_again(*race.other, access.address)
                             : races_.has_acquired(thread, access.address);
    const bool is_volatile = race.doubt == RaceDetector::Race::strong;
    const LocationId other = LocationId::from(race.other->origin);
    // lanes of one warp, of which one reads what the other writes
    const bool in_warp = is_volatile && same_block && race.other->warp == thread / 32 &&
                         access.kind != AccessKind::atomic && race.kind != AccessKind::atomic &&
                         access.kind != race.kind;
    if ((is_volatile && is_flag) || !doubted_.emplace(access.origin, other, in_warp).second) {
        return;
    }
    if (in_warp && access.kind == AccessKind::store && !polling_.contains(other)) {
        block_.stop(race_in_warp(thread, access, region, race));
    }
    Fault fault(is_volatile ? FaultKind::volatile_conflict : FaultKind::missing_acquire,
                (is_volatile ? "two threads, and no race only because of volatile, "
                             : "two threads, and a fence of the one who wrote alone, ") +
                    in(access, region),
                action_of(thread, access), action_of(race, thread, access),
                is_volatile ? "nothing orders them; an atomic operation, a barrier or a flag with "
                              "fences on both sides would"
                : same_block
                    ? "a __threadfence_block() after the flag was read would complete the order"
                    : "a __threadfence() after the flag was read would complete the order");
    if (is_volatile && access.kind == AccessKind::load) {
        const bool shared = block_.space_of(access.address) == Space::shared;
        volatile_loads_.push_back(
            {thread, access.address, std::move(fault), in_warp, std::nullopt});
        if (in_warp && shared) {
            volatile_loads_.back().race = race_in_warp(thread, access, region, race);
        }
    } else {
        block_.warn(std::move(fault));
    }
}

/// Whether the one who has read goes on reading until the value changes.
bool Detector::looks_again(const Access& reader, const char* address) const {
    const Block* const block = races_.running_block(reader);
    if (block == nullptr) {
        return false;
    }
    for (uint32_t lanes = reader.lanes; lanes != 0; lanes &= lanes - 1) {
        const unsigned lane = static_cast<unsigned>(std::countr_zero(lanes));
        const Thread& thread = block->thread(reader.warp * 32 + lane);
        if (thread.finished || !thread.look.has_seen(address)) {
            return false;
        }
    }
    return true;
}

void Detector::strong_read(unsigned thread, const void* address, Scope scope) {
    races_.strong_read(thread, address, scope, is_shared(address));
}

void Detector::strong_write(unsigned thread, const void* address, Scope scope, bool replaces) {
    races_.strong_write(thread, address, scope, replaces, is_shared(address));
}

void Detector::fence(unsigned thread, Scope scope) {
    std::erase_if(volatile_loads_, [&](const VolatileLoad& load) {
        const bool in_order = load.thread == thread && races_.would_learn(thread, load.address);
        if (in_order) {
            doubted_.erase({load.doubt.where.origin, load.doubt.other.origin, load.in_warp});
        }
        return in_order;
    });
    races_.fence(thread, scope);
    warps_with_news_ |= 1u << thread / 32;
}

void Detector::end_thread(unsigned thread) {
    const auto take_own = [thread](auto& loads) {
        const auto others = std::ranges::stable_partition(
            loads, [thread](const auto& load) { return load.thread != thread; });
        std::vector own(std::make_move_iterator(others.begin()),
                        std::make_move_iterator(others.end()));
        loads.erase(others.begin(), others.end());
        return own;
    };
    for (PlainLoad& load : take_own(plain_loads_)) {
        block_.report(std::move(load.race));
    }
    for (VolatileLoad& load : take_own(volatile_loads_)) {
        const bool has_waited = polling_.contains(load.doubt.where.origin);
        if (load.race && !has_waited) {
            block_.report(*std::move(load.race));
        } else {
            block_.warn(std::move(load.doubt));
        }
    }
}

void Detector::go_on() { races_.go_on(); }

/// Whose memory an address is that no thread can use.
std::string Detector::hint_elsewhere(const char* address) const {
    constexpr size_t page = 4096;
    if (reinterpret_cast<size_t>(address) < page) {
        return "it comes from a null pointer";
    }
    for (unsigned other = 0; other < block_.thread_count(); ++other) {
        if (block_.stacks().contains(other, address)) {
            return "it is a local variable of thread " +
                   to_string(dim3(element(block_.launch().block, other))) +
                   ", which no other thread can reach";
        }
    }
    return "the host's memory is not the device's: cudaMalloc gives that, and cudaMemcpy copies";
}

/// An access to neither: local variables, arguments and constants are fine, anything else does not
/// exist on a GPU.
void Detector::check_elsewhere(unsigned thread, const AccessEvent& access) {
    const auto inside = [&](const void* begin, const void* end) {
        return access.address >= begin && access.address < end;
    };
    const Launch& launch = block_.launch();
    const auto* const arguments = static_cast<const char*>(launch.context);
    if (!block_.stacks().contains(thread, access.address) &&
        !inside(executable_.begin, executable_.end) &&
        !inside(arguments, arguments + launch.context_bytes)) {
        block_.stop({FaultKind::out_of_bounds,
                     "out of bounds: an address that is neither in global nor in shared memory, "
                     "nor a variable of the thread",
                     action_of(thread, access), hint_elsewhere(access.address)});
    }
}

void Detector::start_copy(const AsyncCopy& copy) {
    const unsigned thread = copy.work.thread;
    const LocationId origin = LocationId::of(copy.work.location);
    // In pieces, where a part is copied that no single access has. The address is that of a whole
    // copy in any case, and misaligned as such.
    const bool is_aligned = reinterpret_cast<size_t>(copy.global) % copy.bytes == 0;
    const auto piece = is_aligned ? static_cast<uint8_t>(copy.given & -copy.given) : copy.bytes;
    for (unsigned at = 0; at < copy.given; at += piece) {
        check(thread, {copy.global + at, piece, AccessKind::load, origin}, Space::global);
    }
    const AccessEvent write{copy.shared, copy.bytes, AccessKind::store, origin};
    check(thread, write, Space::shared);
    const uint32_t work =
        begin_work(copy.work, channel_in(copy_channels_[thread]), copy.place, EngineWork::copies);
    find(thread, write, Space::shared).visit(write, [&](Cell& cell) {
        races_.write_by(work, cell);
    });
}

void Detector::wait_for_copies(unsigned thread, uint32_t count) {
    races_.clocks().learn_ends(thread, channel_in(copy_channels_[thread]), count);
}

void Detector::release(unsigned thread, const void* barrier, SourceLocation location) {
    BarrierClocks& clocks = barrier_clocks_[barrier];
    if (clocks.is_mbarrier()) {
        clocks.phase.last = {thread, step_at_mbarrier(thread), location};
        clocks.phase.arrivals.push_back(clocks.phase.last);
    }
    races_.clocks().release(thread, clocks.gathered);
}

void Detector::hand_on_copies(unsigned thread, uint32_t count, const void* barrier) {
    BarrierClocks& clocks = barrier_clocks_[barrier];
    clocks.phase.with_copies = true;
    raise(clocks.gathered.known, channel_in(copy_channels_[thread]), count);
}

/// Who waits for this phase has waited for those before.
void Detector::end_phase(const void* barrier) {
    BarrierClocks& clocks = barrier_clocks_[barrier];
    if (clocks.is_mbarrier()) {
        check_waits(clocks);
        ++clocks.phases;
        raise(clocks.gathered.known, clocks.channel, clocks.phases);
        raise(clocks.gathered.known, clocks.progress, clocks.phases);
        clocks.ended[1] = std::move(clocks.ended[0]);
        clocks.ended[0] = std::move(clocks.phase);
        clocks.phase = {.arrivals = {}, .last = clocks.ended[0].last};
    }
    clocks.handed_on = clocks.gathered;
}

void Detector::acquire(unsigned thread, const void* barrier) {
    BarrierClocks& clocks = barrier_clocks_[barrier];
    races_.clocks().acquire(thread, clocks.handed_on);
    warps_with_news_ |= 1u << thread / 32;
    if (clocks.is_mbarrier()) {
        Wait& wait = clocks.over[thread];
        wait = clocks.asked[thread];
        wait.number = step_at_mbarrier(thread);
    }
}

} // namespace flash::simt
