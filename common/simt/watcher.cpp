#include "common/simt/watcher.hpp"

#include <bit>

#include "common/simt/block.hpp"

namespace flash::simt {

constinit thread_local Watcher* active_watcher = nullptr;

namespace {

/// Those of `lanes` whose sector is one of the buffer's; sectors are numbered from the arena's beginning.
uint32_t lanes_inside(const DeviceMemory& buffer, const char* arena, uint32_t lanes, const WarpLog::Values& sectors) {
    const size_t first = static_cast<size_t>(buffer.valid_begin() - arena) / sector_bytes;
    const size_t last = static_cast<size_t>(buffer.valid_end() - 1 - arena) / sector_bytes;
    uint32_t inside = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        inside |= first <= sectors[lane] && sectors[lane] <= last ? 1u << lane : 0;
    }
    return inside;
}

} // namespace

Watcher::Watcher(Block& block) : block_(block), arena_(arena()) {}

bool Watcher::begin_launch(const Options& options) {
    detect_ = options.detect;
    count_ = options.count;
    if (detect_) {
        if (!detector_) {
            detector_.emplace(block_);
        }
        detector_->begin_launch();
    }
    tally_.clear();
    return detect_ || count_;
}

void Watcher::begin_block() {
    if (detect_) {
        detector_->begin_block();
    }
    for (WarpLog& log : logs_) {
        log.clear();
    }
}

std::optional<Fault> Watcher::end_block() { return detect_ ? detector_->end_block() : std::nullopt; }

[[gnu::always_inline]] inline Space Watcher::space_of(const char* address) const {
    const SharedMemory& shared = block_.shared();
    return arena_.contains(address)                                  ? Space::global
           : shared.is_dynamic(address) || shared.is_static(address) ? Space::shared
                                                                     : Space::elsewhere;
}

[[gnu::always_inline]] inline void Watcher::log(const Thread& thread, RequestKey key, const char* address) {
    const uint32_t value = key.space == Space::global
                               ? static_cast<uint32_t>(static_cast<size_t>(address - arena_.begin) / sector_bytes)
                               : static_cast<uint32_t>(reinterpret_cast<size_t>(address) / 4);
    logs_[thread.number / 32].add(thread.number % 32, key, value);
}

void Watcher::access(const void* where, unsigned bytes, Kind kind, Origin origin) {
    const auto* const address = static_cast<const char*>(where);
    const Thread& thread = block_.current();
    if (count_) {
        const Space space = space_of(address);
        if (space != Space::elsewhere) {
            log(thread, {origin, kind, space, static_cast<uint8_t>(bytes), false}, address);
        }
    }
    check(thread, address, bytes, kind, origin);
}

void Watcher::check(const Thread& thread, const void* where, unsigned bytes, Kind kind, Origin origin) {
    if (!detect_) {
        return;
    }
    const AccessEvent event{static_cast<const char*>(where), bytes, kind, origin};
    const Space space = space_of(event.address);
    if (space == Space::elsewhere) {
        detector_->check_elsewhere(thread, event);
    } else {
        detector_->check(thread, event, space);
    }
}

void Watcher::start_copy(const Thread& thread, const AsyncCopy& copy) {
    if (detect_) {
        detector_->start_copy(thread, copy);
    }
    if (count_) {
        const Origin origin = Origin::of(copy.site);
        const auto bytes = static_cast<uint8_t>(copy.bytes);
        if (copy.global != nullptr) {
            log(thread, {origin, Kind::load, Space::global, bytes, true}, copy.global);
        }
        log(thread, {origin, Kind::store, Space::shared, bytes, true}, copy.shared);
    }
}

void Watcher::wait_for_copies(const Thread& thread, uint32_t count) {
    if (detect_) {
        detector_->wait_for_copies(thread, count);
    }
}

void Watcher::release(const Thread& thread, MBarrier& barrier) {
    if (detect_) {
        detector_->release(thread, barrier);
    }
}

void Watcher::hand_on_copies(const Thread& thread, uint32_t count, MBarrier& barrier) {
    if (detect_) {
        detector_->hand_on_copies(thread, count, barrier);
    }
}

void Watcher::acquire(const Thread& thread, const MBarrier& barrier) {
    if (detect_) {
        detector_->acquire(thread, barrier);
    }
}

void Watcher::barrier(Site site) {
    if (detect_) {
        detector_->barrier();
    }
    if (Counters* const own = counters(site)) {
        ++own->barriers;
    }
}

void Watcher::sync_warp(unsigned warp, uint32_t lanes) {
    if (detect_) {
        detector_->sync_warp(warp, lanes);
    }
}

void Watcher::warp_together(unsigned warp) {
    if (count_) {
        logs_[warp].flush([this](const RequestKey& key, uint32_t lanes, const WarpLog::Values& values) {
            count(key, lanes, values);
        });
    }
}

Counters* Watcher::counters(Site site) { return count_ ? &tally_.line(Origin::of(site)) : nullptr; }

void Watcher::count(const RequestKey& key, uint32_t lanes, const WarpLog::Values& values) {
    Counters& line = tally_.line(key.origin);
    const uint64_t bytes = static_cast<uint64_t>(std::popcount(lanes)) * key.bytes;
    if (key.kind == Kind::atomic) {
        ++line.atomics;
        return;
    }
    if (key.space == Space::shared) {
        const Wavefronts passes = wavefronts(lanes, values, key.bytes);
        line.cp_async += key.async ? 1 : 0;
        (key.async                ? line.async_store
         : key.kind == Kind::load ? line.shared_load
                                  : line.shared_store) += {1, bytes, passes.needed, passes.ideal};
        return;
    }
    const GlobalTraffic request{1, bytes, count_distinct(lanes, values), (bytes + sector_bytes - 1) / sector_bytes};
    (key.kind == Kind::load ? line.global_load : line.global_store) += request;
    // Lanes that were put together may yet use different buffers: one function is called for K, then for V, say.
    for (uint32_t left = lanes; left != 0;) {
        const size_t sector = values[std::countr_zero(left)];
        const DeviceMemory* const buffer = buffer_around(arena_.begin + sector * sector_bytes);
        if (buffer == nullptr) {
            left &= left - 1;
            continue;
        }
        const uint32_t own = lanes_inside(*buffer, arena_.begin, left, values);
        left &= ~own;
        const uint64_t own_bytes = static_cast<uint64_t>(std::popcount(own)) * key.bytes;
        BufferTraffic& traffic = tally_.of(*buffer);
        (key.kind == Kind::load ? traffic.load : traffic.store) +=
            {1, own_bytes, count_distinct(own, values), (own_bytes + sector_bytes - 1) / sector_bytes};
    }
}

} // namespace flash::simt
