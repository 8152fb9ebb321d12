#include "common/simt/detector.hpp"

#include <algorithm>
#include <bit>

#include "common/simt/block.hpp"

namespace flash::simt {
namespace {

const char* verb(Kind kind) {
    return kind == Kind::load ? "reads" : kind == Kind::store ? "writes" : "updates atomically";
}

std::string quantity(const AccessEvent& access) { return plural(access.bytes, "byte"); }

} // namespace

Detector::Detector(Block& block) : block_(block), image_(executable_image()) {
    const SharedMemory& shared = block.shared();
    dynamic_shadow_ = std::make_unique<Shadow>(shared.region_begin(), SharedMemory::region_bytes);
    static_shadow_ = std::make_unique<Shadow>(shared.segment().begin, shared.segment().bytes);
}

void Detector::begin_launch() {
    launch_begin_ = epoch_ + 1;
    blocks_.clear();
}

void Detector::begin_block() {
    unwritten_.reset();
    barrier();
    block_begin_ = epoch_;
    blocks_.emplace_back(epoch_, block_.index());
}

void Detector::barrier() {
    if (unwritten_) {
        block_.stop(std::move(*unwritten_));
    }
    ++epoch_;
    std::ranges::fill(warp_epochs_, 0);
}

std::optional<Fault> Detector::end_block() { return std::exchange(unwritten_, std::nullopt); }

void Detector::sync_warp(unsigned warp) { ++warp_epochs_[warp]; }

Moment Detector::moment_of(const Thread& thread, const AccessEvent& access, Space space) const {
    const unsigned warp = thread.number / 32;
    return {{epoch_, access.origin.number(), 1u << thread.number % 32, warp_epochs_[warp], static_cast<uint8_t>(warp)},
            launch_begin_,
            block_begin_,
            space == Space::shared};
}

Place Detector::place_of(const Trace& trace, const Trace& now, const char* action) const {
    // The last block that began at or before that epoch.
    const auto next = std::ranges::upper_bound(blocks_, trace.epoch, {}, &std::pair<uint32_t, uint3>::first);
    const bool same_warp = trace.warp == now.warp && trace.epoch == now.epoch;
    const uint32_t others = same_warp ? trace.lanes & ~now.lanes : trace.lanes;
    const unsigned number = trace.warp * 32u + static_cast<unsigned>(std::countr_zero(others));
    return {dim3((next - 1)->second), dim3(element(block_.launch().block, number)), action, Origin::from(trace.origin)};
}

Fault Detector::fault(FaultKind kind, const std::string& summary, const Thread& thread,
                      const AccessEvent& access) const {
    Fault found(kind, summary);
    found.where = {dim3(block_.index()), dim3(thread.index), std::string(verb(access.kind)) + " " + quantity(access),
                   access.origin};
    return found;
}

void Detector::stop(FaultKind kind, const std::string& summary, const Thread& thread, const AccessEvent& access,
                    const std::string& hint, const Trace* other, const char* other_action) const {
    Fault found = fault(kind, summary, thread, access);
    found.hint = hint;
    if (other != nullptr) {
        found.has_other = true;
        found.other = place_of(*other, moment_of(thread, access, Space::shared).now, other_action);
    }
    block_.stop(std::move(found));
}

Detector::Region Detector::find(const Thread& thread, const AccessEvent& access, Space space) const {
    const auto beyond = [&](const char* begin, size_t bytes, std::string_view name) {
        const bool before = access.address < begin;
        const auto distance = static_cast<size_t>(before ? begin - access.address : access.address - begin);
        const std::string place = before             ? plural(distance, "byte") + " before the start of "
                                  : distance < bytes ? "across the end of "
                                                     : plural(distance - bytes, "byte") + " past the end of ";
        stop(FaultKind::out_of_bounds,
             "out of bounds: " + quantity(access) + ", " + place + std::string(name) + " (" + plural(bytes, "byte") +
                 ")",
             thread, access);
    };
    const auto inside = [&](const char* begin, size_t bytes) {
        return access.address >= begin && access.address + access.bytes <= begin + bytes;
    };
    if (space == Space::global) {
        const DeviceMemory* const buffer = buffer_around(access.address);
        if (buffer == nullptr) {
            stop(FaultKind::out_of_bounds, "out of bounds: no buffer is at this address of global memory", thread,
                 access);
        }
        const auto bytes = static_cast<size_t>(buffer->valid_end() - buffer->valid_begin());
        const std::string_view name = buffer->name();
        if (!inside(buffer->valid_begin(), bytes)) {
            beyond(buffer->valid_begin(), bytes, name);
        }
        return {buffer->valid_begin(), bytes, name, &buffer->shadow()};
    }
    const SharedMemory& shared = block_.shared();
    if (!shared.is_static(access.address)) {
        if (!inside(shared.dynamic(), shared.dynamic_bytes())) {
            beyond(shared.dynamic(), shared.dynamic_bytes(), "the dynamic shared memory");
        }
        return {shared.dynamic(), shared.dynamic_bytes(), "the dynamic shared memory", dynamic_shadow_.get()};
    }
    const auto offset = static_cast<size_t>(access.address - shared.segment().begin);
    const SharedVariable* const variable = shared_variable_near(block_.kernel(), offset);
    if (variable != nullptr) {
        const char* const begin = shared.segment().begin + variable->offset;
        if (!inside(begin, variable->bytes)) {
            beyond(begin, variable->bytes, variable->name);
        }
        return {begin, variable->bytes, variable->name, static_shadow_.get()};
    }
    stop(FaultKind::out_of_bounds, "out of bounds: no __shared__ variable of the kernel is at this address", thread,
         access);
}

void Detector::check(const Thread& thread, const AccessEvent& access, Space space) {
    const Region region = find(thread, access, space);
    const auto bytes_of = [&](const char* address) {
        return "at byte " + std::to_string(address - region.begin) + " of " + std::string(region.name);
    };
    if (reinterpret_cast<size_t>(access.address) % access.bytes != 0) {
        stop(FaultKind::misaligned,
             "misaligned: an access of " + quantity(access) + " " + bytes_of(access.address) +
                 ", and its address is no multiple of " + std::to_string(access.bytes),
             thread, access);
    }
    const Moment moment = moment_of(thread, access, space);
    for (const char* byte = access.address; byte < access.address + access.bytes; byte += Shadow::granule) {
        Cell& cell = *region.shadow->at(byte);
        if (cell.write.in_flight && moment.of_this_block(cell.write) && space == Space::shared) {
            stop(
                FaultKind::async_copy_in_flight, "data of a cp.async used before its wait, " + bytes_of(access.address),
                thread, access,
                "the thread that copies must wait for its group (cp_async_wait), then a barrier lets the others see it",
                &cell.write, "starts the copy");
        }
        if (access.kind != Kind::store && space == Space::shared && !moment.of_this_block(cell.write) && !unwritten_) {
            unwritten_ =
                fault(FaultKind::uninitialised,
                      "read of shared memory that no thread of the block has written, " + bytes_of(access.address),
                      thread, access);
        }
        if (const Trace* const other = cell.race(access.kind, moment)) {
            const bool same_block = moment.of_this_block(*other);
            const bool same_warp = same_block && other->warp == moment.now.warp;
            const bool wrote = other == &cell.write;
            const bool read = other >= &cell.reads.last && other <= &cell.reads.other_block;
            stop(FaultKind::race, "race: two threads, " + bytes_of(access.address), thread, access,
                 same_warp    ? "they are lanes of one warp; a __syncwarp() between would order them"
                 : same_block ? "a __syncthreads() between would order them"
                              : "nothing orders threads of different blocks; only atomic operations may meet",
                 other,
                 wrote  ? "has written it"
                 : read ? "has read it"
                        : "has updated it atomically");
        }
        cell.remember(access.kind, moment);
    }
}

void Detector::check_elsewhere(const Thread& thread, const AccessEvent& access) {
    const auto inside = [&](const void* begin, const void* end) {
        return access.address >= begin && access.address < end;
    };
    const Launch& launch = block_.launch();
    const auto* const arguments = static_cast<const char*>(launch.context);
    if (!block_.is_stack_of(thread, access.address) && !inside(image_.first, image_.second) &&
        !inside(arguments, arguments + launch.context_bytes)) {
        stop(FaultKind::out_of_bounds,
             "out of bounds: an address that is neither in global nor in shared memory, nor a variable of the thread",
             thread, access);
    }
}

void Detector::start_copy(const Thread& thread, const AsyncCopy& copy) {
    const Origin origin = Origin::of(copy.site);
    if (copy.global != nullptr) {
        check(thread, {copy.global, copy.bytes, Kind::load, origin}, Space::global);
    }
    const AccessEvent write{copy.shared, copy.bytes, Kind::store, origin};
    check(thread, write, Space::shared);
    for (const char* byte = copy.shared; byte < copy.shared + copy.bytes; byte += Shadow::granule) {
        find(thread, write, Space::shared).shadow->at(byte)->write.in_flight = true;
    }
}

void Detector::end_copy(const Thread& thread, const AsyncCopy& copy) {
    const AccessEvent write{copy.shared, copy.bytes, Kind::store, Origin::of(copy.site)};
    const Moment moment = moment_of(thread, write, Space::shared);
    for (const char* byte = copy.shared; byte < copy.shared + copy.bytes; byte += Shadow::granule) {
        find(thread, write, Space::shared).shadow->at(byte)->write = moment.now;
    }
}

} // namespace flash::simt
