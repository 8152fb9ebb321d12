#include "common/simt/observers/recorder.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/simt/observers/trace.hpp"

namespace flash::simt {
namespace {

constexpr int64_t page = 4096;

std::string from_environment(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

/// Those that the environment asks for: FLASH_SIMT_WATCH_KERNEL holds a part of the kernel's name,
/// FLASH_SIMT_WATCH_BLOCK "x,y,z".
bool is_wanted(const std::string& kernel, uint3 block) {
    static const std::string wanted_kernel = from_environment("FLASH_SIMT_WATCH_KERNEL");
    static const std::string wanted_block = from_environment("FLASH_SIMT_WATCH_BLOCK");
    const std::string own =
        std::to_string(block.x) + "," + std::to_string(block.y) + "," + std::to_string(block.z);
    return kernel.find(wanted_kernel) != std::string::npos &&
           own == (wanted_block.empty() ? "0,0,0" : wanted_block);
}

unsigned lowest_lane(uint32_t lanes) { return static_cast<unsigned>(std::countr_zero(lanes)); }

bool is(const char* operation, std::string_view name) { return operation == name; }

} // namespace

bool recording_wanted() {
    static const bool wanted = !from_environment("FLASH_SIMT_WATCH").empty();
    return wanted;
}

size_t Recording::steps() const {
    size_t sum = 0;
    for (const auto& steps : warps) {
        sum += steps.size();
    }
    return sum;
}

size_t Recorder::Hash::operator()(const Site& site) const {
    size_t sum = reinterpret_cast<size_t>(site.operation) ^ reinterpret_cast<size_t>(site.at) << 1;
    sum ^= size_t{site.origin.number()} << 20 ^ size_t { site.bytes } << 8;
    return (sum ^ static_cast<size_t>(site.space) << 2 ^ size_t{site.async}) *
               0x9e3779b97f4a7c15u >>
           16;
}

void Recorder::begin_block() {
    recording_.reset();
    active_ = is_wanted(block_.kernel().name, block_.index());
    if (!active_) {
        return;
    }
    counting_.begin_launch();
    counting_.begin_block();
    recording_ = std::make_unique<Recording>();
    logs_.fill({});
    site_numbers_.clear();
    pattern_numbers_.clear();
    pending_.reset();
    load_phases_.clear();
    products_.fill({});
    products_begun_.fill(0);
    next_base_ = 0;
    recent_ = nullptr;
    const SharedMemory& shared = block_.shared();
    const auto rounded = static_cast<int64_t>((shared.dynamic_bytes() + 127) / 128 * 128);
    int64_t first = 0; // bytes of the segment before the kernel's own variables
    if (!block_.kernel().shared.empty()) {
        first = static_cast<int64_t>(block_.kernel().shared.front().offset) / 128 * 128;
    }
    const auto skew =
        static_cast<int64_t>(reinterpret_cast<size_t>(shared.segment().begin + first) % 128);
    recording_->static_base = rounded + skew - first;
}

uint32_t Recorder::site(const Site& site) {
    const auto [found, is_new] =
        site_numbers_.try_emplace(site, static_cast<uint32_t>(recording_->sites.size()));
    if (is_new) {
        recording_->sites.push_back(site);
    }
    return found->second;
}

uint32_t Recorder::pattern(Pattern pattern) {
    const auto [found, is_new] = pattern_numbers_.try_emplace(
        std::move(pattern), static_cast<uint32_t>(recording_->patterns.size()));
    if (is_new) {
        recording_->patterns.push_back(found->first);
    }
    return found->second;
}

/// The thread executes what others of its warp may have executed already.
Recorder::Request& Recorder::join(unsigned thread, const Site& place, int64_t of_lane) {
    const unsigned lane = thread % 32;
    Log& log = logs_[thread / 32];
    const uint32_t number = site(place);
    AtSite& at = log.sites[number];
    const uint32_t turn = at.used[lane]++;
    if (turn == at.requests.size()) {
        const auto made = static_cast<uint32_t>(log.requests.size());
        Request& fresh = log.requests.emplace_back();
        fresh.site = number;
        fresh.next = std::exchange(log.requests[log.last[lane]].next, made);
        at.requests.push_back(made);
    }
    log.last[lane] = at.requests[turn];
    Request& request = log.requests[at.requests[turn]];
    request.lanes |= 1u << lane;
    request.of_lane[lane] = of_lane;
    recording_->last_warp = thread / 32;
    return request;
}

/// The store before this event has been made.
void Recorder::settle() {
    if (pending_) {
        std::vector<uint8_t>& data = logs_[pending_->warp].requests[pending_->request].data;
        data.resize(size_t{32} * pending_->bytes);
        std::memcpy(&data[size_t{pending_->lane} * pending_->bytes], pending_->address,
                    pending_->bytes);
        pending_.reset();
    }
}

/// Where a trace puts an address.
int64_t Recorder::place(const char* address, Space space) {
    if (space == Space::shared) {
        const SharedMemory& shared = block_.shared();
        return shared.is_dynamic(address)
                   ? address - shared.dynamic()
                   : recording_->static_base + (address - shared.segment().begin);
    }
    if (recent_ == nullptr || address < recent_->begin ||
        address >= recent_->begin + recent_->bytes) {
        const Buffer* const buffer = buffer_around(address);
        const uint64_t number = buffer == nullptr ? ~uint64_t{0} : buffer->number;
        auto found = recording_->buffers.find(number);
        if (found == recording_->buffers.end()) {
            const char* const begin = buffer == nullptr ? executable().begin : buffer->begin;
            const size_t bytes =
                buffer == nullptr ? static_cast<size_t>(executable().end - begin) : buffer->bytes();
            const int64_t skew = static_cast<int64_t>(reinterpret_cast<size_t>(begin) % page);
            const std::string name = buffer == nullptr ? "variables of the program" : buffer->name;
            found = recording_->buffers
                        .emplace(number, SeenBuffer{begin, name, bytes, next_base_ + skew})
                        .first;
            next_base_ += (skew + static_cast<int64_t>(bytes) + page - 1) / page * page + page;
        }
        recent_ = &found->second;
    }
    return recent_->base + (address - recent_->begin);
}

Touched Recorder::place_runs(const std::vector<std::pair<const char*, unsigned>>& pieces,
                             Space space, uint32_t lanes) {
    std::vector<std::pair<int64_t, int64_t>> placed;
    for (const auto& [address, bytes] : pieces) {
        placed.emplace_back(place(address, space), bytes);
    }
    std::ranges::sort(placed);
    if (placed.empty()) {
        return {};
    }
    Pattern found{lanes, {}, {}};
    int64_t end = -1;
    for (const auto& [begin, bytes] : placed) {
        if (begin == end) {
            found.runs.back() += bytes;
        } else {
            found.runs.push_back(begin - placed.front().first);
            found.runs.push_back(bytes);
        }
        end = begin + bytes;
    }
    return {pattern(std::move(found)), placed.front().first};
}

void Recorder::access(unsigned thread, const AccessEvent& access) {
    if (!active_) {
        return;
    }
    settle();
    const Space space = block_.space_of(access.address);
    if (space == Space::elsewhere) {
        return;
    }
    constexpr const char* names[] = {"load", "store", "atomic"};
    const Site own{names[static_cast<size_t>(access.kind)], access.origin, space,
                   static_cast<uint8_t>(access.bytes)};
    const Request& request = join(thread, own, place(access.address, space));
    if (space == Space::shared && access.kind != AccessKind::load) {
        const auto number = static_cast<uint32_t>(&request - logs_[thread / 32].requests.data());
        pending_ = {thread / 32, thread % 32, number, access.address, access.bytes};
    }
}

/// At an mbarrier, instruct() tells more.
void Recorder::touch(unsigned thread, const AccessEvent& access) {
    if (active_ && block_.space_of(access.address) == Space::global) {
        settle();
        join(thread, {"semaphore_wait", access.origin, Space::global, 4},
             place(access.address, Space::global));
    }
}

void Recorder::visit(unsigned thread, LocationId origin) {
    if (active_) {
        settle();
        join(thread, {"line", origin}, 0);
    }
}

void Recorder::instruct(unsigned thread, const Instruction& instruction) {
    if (!active_) {
        return;
    }
    settle();
    const Site own{
        instruction.operation, LocationId::of(instruction.location), Space::elsewhere, 0, false,
        instruction.at};
    const bool waits =
        is(instruction.operation, "mbarrier_wait") || is(instruction.operation, "mbarrier_init");
    const bool named = instruction.at != nullptr && !waits;
    Request& request = join(thread, own, instruction.number);
    if (named) { // the phase that it comes to
        if (is(instruction.operation, "mbarrier_expect_tx")) {
            request.second.base += instruction.number;
        }
        request.of_lane[thread % 32] = recording_->phases[instruction.at];
    }
}

void Recorder::load_matrices(std::span<const MatrixRow> rows, SourceLocation) {
    std::ranges::copy(rows, rows_.begin());
}

void Recorder::start_copy(const AsyncCopy& copy) {
    if (!active_) {
        return;
    }
    settle();
    const unsigned thread = copy.work.thread;
    const LocationId origin = LocationId::of(copy.work.location);
    uint32_t reads = 0;
    if (copy.given != 0) {
        join(thread, {"load", origin, Space::global, copy.given, true},
             place(copy.global, Space::global));
        reads = logs_[thread / 32].last[thread % 32];
    }
    Request& request = join(thread, {"cp.async", origin, Space::shared, copy.bytes, true},
                            place(copy.shared, Space::shared));
    request.reads = reads;
    request.data.resize(size_t{32} * copy.bytes);
    std::copy_n(copy.global, copy.given, &request.data[size_t{thread % 32} * copy.bytes]);
}

void Recorder::start_load(const BulkLoad& load) {
    if (!active_) {
        return;
    }
    settle();
    const LocationId origin = LocationId::of(load.work.location);
    const int64_t phase = recording_->phases[load.mbarrier];
    ++recording_->loads[{load.mbarrier, phase}];
    Request& request =
        join(load.work.thread, {load.work.operation, origin, Space::shared, 0, true, load.mbarrier},
             phase);
    std::vector<std::pair<const char*, unsigned>> pieces;
    request.data.assign(load.bytes, 0);
    for (const Chunk& chunk : load.inside) {
        pieces.emplace_back(chunk.global, chunk.bytes);
        std::memcpy(&request.data[static_cast<size_t>(chunk.shared - load.shared)], chunk.global,
                    chunk.bytes);
    }
    request.first = place_runs({{load.shared, load.bytes}}, Space::shared, request.lanes);
    request.second = place_runs(pieces, Space::global, request.lanes);
}

void Recorder::land(const BulkLoad&) {}

void Recorder::start_store(const BulkStore& store) {
    if (!active_) {
        return;
    }
    settle();
    int64_t bytes = 0;
    std::vector<std::pair<const char*, unsigned>> from, to;
    for (const Chunk& chunk : store.chunks) {
        from.emplace_back(chunk.shared, chunk.bytes);
        to.emplace_back(chunk.global, chunk.bytes);
        bytes += chunk.bytes;
    }
    Request& request = join(
        store.work.thread,
        {store.work.operation, LocationId::of(store.work.location), Space::shared, 0, true}, bytes);
    request.first = place_runs(from, Space::shared, request.lanes);
    request.second = place_runs(to, Space::global, request.lanes);
}

/// Told when the last of the warpgroup has come; each of its warps has an instruction for it.
void Recorder::start_wgmma(const Wgmma& product) {
    if (!active_) {
        return;
    }
    settle();
    const auto rows = [&](const std::vector<OperandRow>& operand) {
        std::vector<std::pair<const char*, unsigned>> pieces;
        for (const OperandRow row : operand) {
            pieces.emplace_back(row, 16);
        }
        std::ranges::sort(pieces);
        return place_runs(pieces, Space::shared, full_mask);
    };
    std::array<Touched, 4> A;
    for (size_t warp = 0; warp < 4; ++warp) {
        A[warp] = rows(product.A[warp]);
    }
    products_[product.work.thread / 128].emplace_back(A, rows(product.B));
}

void Recorder::end_phase(const void* barrier) {
    if (active_) {
        settle();
        ++recording_->phases[barrier];
    }
}

void Recorder::barrier(SourceLocation) {
    if (active_) {
        settle();
        ++recording_->phases[&block_];
    }
}

void Recorder::meet(CollectiveKind kind, unsigned warp, uint32_t lanes, SourceLocation location) {
    if (!active_) {
        return;
    }
    settle();
    constexpr const char* names[] = {"__syncwarp", "collective", "mma", "ldmatrix"};
    const bool loads = kind == CollectiveKind::ldmatrix;
    const Site own{names[static_cast<size_t>(kind)], LocationId::of(location),
                   loads ? Space::shared : Space::elsewhere, static_cast<uint8_t>(loads ? 16 : 0)};
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        const unsigned lane = lowest_lane(left);
        const auto* const row = static_cast<const char*>(rows_[lane].address);
        join(warp * 32 + lane, own, loads ? place(row, Space::shared) : 0);
    }
}

void Recorder::warp_together(unsigned warp) {
    if (active_) {
        settle();
        flush(warp);
    }
}

Step Recorder::step_of(const Request& request, const Log& log) {
    const Site& own = recording_->sites[request.site];
    Step step{request.site, request.first, request.second, request.lanes, 0, {}};
    const auto touched = [&](const Request& from) {
        const int64_t base = from.of_lane[lowest_lane(from.lanes)];
        Pattern found{from.lanes, {}, {}};
        for (uint32_t left = from.lanes; left != 0; left &= left - 1) {
            found.offsets.push_back(from.of_lane[lowest_lane(left)] - base);
        }
        return Touched{pattern(std::move(found)), base};
    };
    if (own.bytes != 0) {
        step.first = touched(request);
        if (request.reads != 0) {
            step.second = touched(log.requests[request.reads]);
        }
    } else {
        step.number = request.of_lane[lowest_lane(request.lanes)];
        if (request.first.pattern == 0) {
            step.first = {pattern({request.lanes, {}, {}}), 0};
        }
    }
    if (!request.data.empty() && own.bytes != 0) {
        for (uint32_t left = request.lanes; left != 0; left &= left - 1) {
            const auto begin = request.data.begin() + std::ptrdiff_t{own.bytes} * lowest_lane(left);
            step.data.insert(step.data.end(), begin, begin + own.bytes);
        }
    } else {
        step.data = request.data;
    }
    return step;
}

/// The warp's instructions so far are complete.
void Recorder::flush(unsigned warp) {
    Log& log = logs_[warp];
    std::vector<bool> joined(log.requests.size()); // reads that are part of a cp.async
    for (const Request& request : log.requests) {
        if (request.reads != 0) {
            joined[request.reads] = true;
        }
    }
    for (uint32_t i = log.requests[0].next; i != 0; i = log.requests[i].next) {
        if (joined[i]) {
            continue;
        }
        Step& step = recording_->warps[warp].emplace_back(step_of(log.requests[i], log));
        if (is(recording_->sites[step.site].operation, "wgmma")) {
            step.number = products_begun_[warp]++;
        }
    }
    log = {};
}

std::optional<Fault> Recorder::end_block() {
    finish(nullptr);
    return std::nullopt;
}

void Recorder::stopped(const Fault& fault) {
    if (recording_) { // the fault may be one that the block's end shows
        finish(&fault);
    } else {
        write_elsewhere(from_environment("FLASH_SIMT_WATCH") + ".elsewhere", fault);
    }
}

void Recorder::finish(const Fault* fault) {
    if (!recording_) {
        return;
    }
    active_ = false;
    const RuntimeCode runtime;
    settle();
    for (unsigned warp = 0; warp < 32; ++warp) {
        flush(warp);
        for (Step& step : recording_->warps[warp]) {
            const auto& own = products_[warp / 4];
            if (is(recording_->sites[step.site].operation, "wgmma") &&
                static_cast<size_t>(step.number) < own.size()) {
                const auto& [A, B] = own[static_cast<size_t>(step.number)];
                step.first = A[warp % 4].pattern == 0 ? step.first : A[warp % 4];
                step.second = B;
            }
        }
    }
    static size_t most = 0; // of what has been written
    if (fault != nullptr || recording_->steps() > most) {
        most = recording_->steps();
        write_trace(from_environment("FLASH_SIMT_WATCH"), *recording_, block_,
                    counting_.tally().lines, fault);
    }
}

} // namespace flash::simt
