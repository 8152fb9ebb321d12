#include "common/simt/observers/counting.hpp"

#include <bit>

namespace flash::simt {
namespace {

/// Those of `lanes` whose sector is one of the buffer's.
uint32_t lanes_inside(const Buffer& buffer, const GlobalSpace& global, uint32_t lanes,
                      const WarpLog::Values& sectors) {
    const size_t first = global.number(buffer.begin) / sector_bytes;
    const size_t last = global.number(buffer.end - 1) / sector_bytes;
    uint32_t inside = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        inside |= first <= sectors[lane] && sectors[lane] <= last ? 1u << lane : 0;
    }
    return inside;
}

constexpr uint64_t ideal_sectors(uint64_t bytes) {
    return (bytes + sector_bytes - 1) / sector_bytes;
}

/// A request of these lanes, each of which asks for so many bytes.
GlobalTraffic request(uint32_t lanes, const WarpLog::Values& sectors, unsigned bytes_each) {
    const uint64_t bytes = static_cast<uint64_t>(std::popcount(lanes)) * bytes_each;
    return {1, bytes, count_distinct(lanes, sectors), ideal_sectors(bytes)};
}

} // namespace

Tally& Tally::operator+=(const Tally& other) {
    for (const auto& [origin, counters] : other.lines) {
        lines[origin] += counters;
    }
    for (const auto& [number, traffic] : other.buffers) {
        BufferTraffic& sum = buffers[number];
        sum.name = traffic.name;
        sum.bytes = traffic.bytes;
        sum.load += traffic.load;
        sum.store += traffic.store;
    }
    borrowed.insert(other.borrowed.begin(), other.borrowed.end());
    return *this;
}

void Counting::begin_block() {
    for (WarpLog& log : logs_) {
        log.clear();
    }
}

BufferTraffic& Counting::traffic_of(const Buffer& buffer) {
    BufferTraffic& traffic = tally_.buffers[buffer.number];
    if (traffic.name.empty()) {
        traffic.name = buffer.name;
        traffic.bytes = buffer.bytes();
    }
    return traffic;
}

[[gnu::always_inline]] inline void Counting::log(unsigned thread, RequestKey key,
                                                 const char* address) {
    const uint32_t value = key.space == Space::global
                               ? static_cast<uint32_t>(global_.number(address) / sector_bytes)
                               : static_cast<uint32_t>(reinterpret_cast<size_t>(address) / 4);
    logs_[thread / 32].add(thread % 32, key, value);
}

/// What a kernel calls may have __shared__ variables of its own; files have some, too.
void Counting::note_variable(size_t offset) {
    if (recent_ != nullptr && offset - recent_->offset < recent_->bytes) {
        return;
    }
    const SharedVariable* const variable = shared_variable_near(block_.kernel(), offset);
    if (variable != nullptr && offset - variable->offset < variable->bytes) {
        recent_ = variable;
        if (!is_own(block_.kernel(), *variable)) {
            tally_.borrowed.emplace(variable->offset, variable->bytes);
        }
    }
}

void Counting::access(unsigned thread, const AccessEvent& access) {
    const Space space = block_.space_of(access.address);
    if (space == Space::shared && block_.shared().is_static(access.address)) {
        const Segment& segment = block_.shared().segment();
        note_variable(static_cast<size_t>(access.address - segment.begin));
    }
    if (space != Space::elsewhere) {
        log(thread, {access.origin, access.kind, space, static_cast<uint8_t>(access.bytes), false},
            access.address);
    }
}

/// The 8 rows of one matrix are one wavefront if their 16-byte pieces lie in different banks.
void Counting::load_matrices(std::span<const MatrixRow> rows, SourceLocation location) {
    SharedTraffic& traffic = line(LocationId::of(location)).shared_load;
    ++traffic.requests;
    for (size_t first = 0; first < rows.size(); first += 8) {
        uint32_t words[32] = {};
        for (size_t i = 0; i < 8; ++i) {
            words[i] = static_cast<uint32_t>(reinterpret_cast<size_t>(rows[first + i].address) / 4);
        }
        const Wavefronts passes = wavefronts(0xff, words, 16);
        traffic += {0, 128, passes.needed, passes.ideal};
    }
}

void Counting::start_copy(const AsyncCopy& copy) {
    const unsigned thread = copy.work.thread;
    const LocationId origin = LocationId::of(copy.work.location);
    if (copy.given != 0) {
        log(thread, {origin, AccessKind::load, Space::global, copy.given, true}, copy.global);
    }
    log(thread, {origin, AccessKind::store, Space::shared, copy.bytes, true}, copy.shared);
}

/// One request of TMA, in the traffic of its buffer; returns its bytes.
uint64_t Counting::count_chunks(const std::vector<Chunk>& chunks,
                                GlobalTraffic BufferTraffic::*direction) {
    GlobalTraffic own{1, 0, 0, 0};
    size_t last = 0; // sector
    for (const Chunk& chunk : chunks) {
        own.bytes += chunk.bytes;
        for (size_t byte = 0; byte < chunk.bytes; byte += 2) {
            const size_t sector = reinterpret_cast<size_t>(chunk.global + byte) / sector_bytes;
            own.sectors += sector == last ? 0 : 1;
            last = sector;
        }
    }
    own.ideal = ideal_sectors(own.bytes);
    if (!chunks.empty()) {
        traffic_of(*buffer_around(chunks.front().global)).*direction += own;
    }
    return own.bytes;
}

void Counting::start_load(const BulkLoad& load) {
    line(LocationId::of(load.work.location)).tma_load += {1, load.bytes};
    count_chunks(load.inside, &BufferTraffic::load);
}

void Counting::start_store(const BulkStore& store) {
    Counters& own = line(LocationId::of(store.work.location));
    (store.adds ? own.bulk_reduce : own.tma_store) +=
        {1, count_chunks(store.chunks, &BufferTraffic::store)};
}

void Counting::meet(CollectiveKind meeting, unsigned, uint32_t, SourceLocation location) {
    Counters& own = line(LocationId::of(location));
    ++(meeting == CollectiveKind::mma        ? own.mma
       : meeting == CollectiveKind::ldmatrix ? own.ldmatrix
                                             : own.collectives);
}

void Counting::warp_together(unsigned warp) {
    logs_[warp].flush([this](const RequestKey& key, uint32_t lanes, const WarpLog::Values& values) {
        count(key, lanes, values);
    });
}

void Counting::count(const RequestKey& key, uint32_t lanes, const WarpLog::Values& values) {
    Counters& own_line = line(key.origin);
    if (key.kind == AccessKind::atomic) {
        ++own_line.atomics;
        if (key.space == Space::global) {
            own_line.global_atomic += request(lanes, values, key.bytes);
        }
        return;
    }
    if (key.space == Space::shared) {
        const uint64_t bytes = static_cast<uint64_t>(std::popcount(lanes)) * key.bytes;
        const Wavefronts passes = wavefronts(lanes, values, key.bytes);
        own_line.cp_async += key.async ? 1 : 0;
        (key.async                      ? own_line.async_store
         : key.kind == AccessKind::load ? own_line.shared_load
                                        : own_line.shared_store) +=
            {1, bytes, passes.needed, passes.ideal};
        return;
    }
    (key.kind == AccessKind::load ? own_line.global_load : own_line.global_store) +=
        request(lanes, values, key.bytes);
    // Lanes that were put together may yet use different buffers: one function is called for K,
    // then for V, say.
    for (uint32_t left = lanes; left != 0;) {
        const size_t sector = values[std::countr_zero(left)];
        const Buffer* const buffer = buffer_around(global_.at(sector * sector_bytes));
        const uint32_t own = buffer == nullptr ? 0 : lanes_inside(*buffer, global_, left, values);
        if (own == 0) { // behind all buffers, or between two
            left &= left - 1;
            continue;
        }
        left &= ~own;
        BufferTraffic& traffic = traffic_of(*buffer);
        (key.kind == AccessKind::load ? traffic.load : traffic.store) +=
            request(own, values, key.bytes);
    }
}

} // namespace flash::simt
