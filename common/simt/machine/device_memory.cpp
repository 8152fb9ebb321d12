#include "common/simt/machine/device_memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "common/error.hpp"
#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/machine/stream_order.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {
namespace {

constexpr size_t alignment = 256; // as cudaMalloc gives
constexpr size_t slot_bytes = size_t{1} << 21;
constexpr size_t most_addresses = size_t{1} << 37;
constexpr size_t least_addresses = size_t{1} << 26;

/// 4 KiB on most systems, 64 KiB on some with AArch64.
size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

constexpr size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/// Addresses only: no memory stands behind them until a buffer asks for it. Where they are limited,
/// the stacks of threads and what the detector remembers want most of them.
Arena reserve() {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    const size_t allowed = limit.rlim_cur == RLIM_INFINITY ? most_addresses : limit.rlim_cur / 4;
    const size_t for_variables = round_up(executable().variables.bytes, slot_bytes);
    size_t bytes = std::min(most_addresses - for_variables, allowed) / slot_bytes * slot_bytes;
    for (; bytes >= least_addresses; bytes = bytes / 2 / slot_bytes * slot_bytes) {
        void* const begin =
            mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (begin != MAP_FAILED) {
            return {static_cast<char*>(begin), bytes};
        }
    }
    throw Error("cannot reserve " + std::to_string(least_addresses >> 20) +
                " MiB of addresses for the SIMT backend's global memory\n"
                "is the address space limited (ulimit -v)?");
}

/// Which memory owns each slot of the arena. It owns whole slots, the last page of the last one is
/// its guard.
std::vector<DeviceMemory*>& owners() {
    static std::vector<DeviceMemory*> table(arena().bytes / slot_bytes);
    return table;
}
std::mutex owners_mutex;
size_t taken_bytes = 0; // of the device's memory, by buffers

/// Those whose writes are tracked.
std::set<DeviceMemory*>& tracked() {
    static std::set<DeviceMemory*> memories;
    return memories;
}

uint64_t next_number() {
    static std::atomic<uint64_t> count = 0;
    return count++;
}

size_t slots_for(size_t bytes) {
    return (round_up(bytes, page_bytes()) + page_bytes() + slot_bytes - 1) / slot_bytes;
}

/// The program's variables that kernels may use, in the order of their addresses.
const std::vector<Buffer>& variable_buffers() {
    static const std::vector<Buffer> all = [] {
        std::vector<Buffer> buffers;
        for (const Variable& variable : device_variables()) {
            buffers.push_back({variable.begin, variable.begin + variable.bytes, variable.name,
                               next_number(), variable.kind == Variable::constant,
                               variable.kind == Variable::managed, nullptr});
        }
        return buffers;
    }();
    return all;
}

/// The last one that begins at or before an address; null when there is none.
const Buffer* last_before(const std::vector<Buffer>& buffers, const char* address) {
    const auto next = std::ranges::upper_bound(buffers, address, {}, [](const Buffer& buffer) {
        return static_cast<const char*>(buffer.begin);
    });
    return next == buffers.begin() ? nullptr : &*std::prev(next);
}

} // namespace

WrittenBytes::WrittenBytes(const char* begin, size_t bytes) : begin_(begin), bytes_(bytes) {
    void* const flags = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (flags == MAP_FAILED) {
        throw std::bad_alloc();
    }
    flags_ = static_cast<char*>(flags);
}

WrittenBytes::~WrittenBytes() { munmap(flags_, std::max<size_t>(bytes_, 1)); }

void WrittenBytes::mark(const char* address, size_t bytes) {
    std::memset(flags_ + (address - begin_), written, bytes);
}

void WrittenBytes::close(const char* address, size_t bytes) {
    std::memset(flags_ + (address - begin_), closed, bytes);
}

void WrittenBytes::open(const char* address, size_t bytes) {
    std::memset(flags_ + (address - begin_), unwritten, bytes);
}

bool WrittenBytes::all(const char* address, size_t bytes) const {
    return std::memchr(flags_ + (address - begin_), unwritten, bytes) == nullptr;
}

bool WrittenBytes::any(const char* address, size_t bytes) const {
    return std::memchr(flags_ + (address - begin_), written, bytes) != nullptr;
}

bool WrittenBytes::is_padding(const char* address, size_t bytes) const {
    constexpr size_t largest_struct = 128;
    const auto at = static_cast<size_t>(address - begin_);
    const auto is_gap = [&](size_t byte, size_t distance) {
        const bool has_before = byte >= distance;
        const bool has_behind = byte + distance < bytes_;
        return (has_before || has_behind) && !(has_before && flags_[byte - distance] == written) &&
               !(has_behind && flags_[byte + distance] == written);
    };
    for (size_t byte = at; byte < at + bytes; ++byte) {
        bool found = flags_[byte] != unwritten;
        for (size_t distance = 4; distance <= largest_struct && !found; distance += 4) {
            found = is_gap(byte, distance);
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

std::span<const char> WrittenBytes::next_unwritten(const char* address, const char* end) const {
    const char* const first = static_cast<const char*>(
        std::memchr(flags_ + (address - begin_), unwritten, static_cast<size_t>(end - address)));
    if (first == nullptr) {
        return {end, size_t{0}};
    }
    const char* const begin = begin_ + (first - flags_);
    const char* const all = flags_ + (end - begin_);
    const auto bytes =
        std::find_if(first, all, [](char flag) { return flag != unwritten; }) - first;
    return {begin, static_cast<size_t>(bytes)};
}

bool WrittenBytes::any_closed(const char* address, size_t bytes) const {
    return std::memchr(flags_ + (address - begin_), closed, bytes) != nullptr;
}

void WrittenBytes::copy(const char* address, const WrittenBytes& from, const char* source,
                        size_t bytes) {
    std::memmove(flags_ + (address - begin_), from.flags_ + (source - from.begin_), bytes);
}

size_t total_memory() {
    static const size_t of_computer = [] {
        size_t bytes = page_bytes() * static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
        size_t allowed = bytes;                                // to this container, if it is one
        std::ifstream("/sys/fs/cgroup/memory.max") >> allowed; // 0 if it says "max"
        return allowed == 0 ? bytes : std::min(bytes, allowed);
    }();
    const uint64_t chosen = options().memory_mib;
    // what the detector remembers of a buffer takes three times the buffer's size
    return chosen != 0 ? size_t{chosen} << 20 : of_computer / 4;
}

size_t memory_left() {
    const std::lock_guard lock(owners_mutex);
    return total_memory() - std::min(total_memory(), taken_bytes);
}

constinit Arena reserved{};

const Arena& arena() {
    [[maybe_unused]] static const bool is_made = (reserved = reserve(), true);
    return reserved;
}

DeviceMemory* memory_around(const void* address) {
    return owners()[static_cast<size_t>(static_cast<const char*>(address) - arena().begin) /
                    slot_bytes];
}

GlobalSpace global_space() {
    static const Segment variables = executable().variables;
    return {arena(), variables.begin, variables.bytes};
}

const Buffer* buffer_around(const void* address) {
    const auto* const place = static_cast<const char*>(address);
    if (!arena().contains(address)) {
        return last_before(variable_buffers(), place);
    }
    const DeviceMemory* const memory = memory_around(address);
    return memory == nullptr ? nullptr : memory->buffer_near(place);
}

void forget_writes() {
    const std::lock_guard lock(owners_mutex);
    for (DeviceMemory* const memory : tracked()) {
        memory->forget_writes();
    }
    tracked().clear();
}

std::string describe_host_memory(const void* address) {
    const std::optional<Variable> variable = variable_at(address);
    return address == nullptr ? "a null pointer"
           : !variable        ? "host memory (malloc, new or a local variable)"
                              : variable->name + ", a variable of the host";
}

DeviceMemory::DeviceMemory(size_t bytes, Kind kind) : bytes_(bytes), kind_(kind) {
    const std::lock_guard lock(owners_mutex);
    auto& table = owners();
    const auto refuse = [&](const std::string& reason) {
        throw Error("not enough memory: a buffer of " + std::to_string(bytes) + " bytes " + reason);
    };
    const bool is_counted = kind == Kind::device || kind == Kind::managed;
    if (is_counted && bytes > total_memory() - std::min(total_memory(), taken_bytes)) {
        refuse("is more than is left of the " + std::to_string(total_memory() >> 20) +
               " MiB that the device has (--memory, FLASH_SIMT_MEMORY_MIB)");
    }
    const size_t wanted = bytes <= arena().bytes ? slots_for(bytes) : table.size();
    // A free slot before each buffer too, so that its lower end is guarded.
    const auto free = std::search_n(table.begin(), table.end(), wanted + 1, nullptr);
    if (free == table.end()) {
        refuse("does not fit the " + std::to_string(arena().bytes) +
               " that all buffers have; try a smaller problem");
    }
    const size_t first = static_cast<size_t>(free - table.begin()) + 1;
    char* const end = arena().begin + (first + wanted) * slot_bytes - page_bytes();
    data_ = end - round_up(bytes, alignment);
    const size_t pages = round_up(bytes, page_bytes());
    if (mprotect(end - pages, pages, PROT_READ | PROT_WRITE) != 0) {
        refuse("is more than the system gives (is there a limit, as ulimit sets it?)");
    }
    std::fill_n(table.begin() + static_cast<std::ptrdiff_t>(first), wanted, this);
    taken_bytes += is_counted ? bytes : 0;
    if (kind == Kind::device || kind == Kind::harness) { // the heap does so when it gives some
        std::memset(data_, 0xff, bytes); // NaN in every type: a GPU's fresh memory is not zero
    } // but pages that the host reaches, too, come from its system
    declare(0, bytes, "a buffer in global memory");
}

DeviceMemory::~DeviceMemory() {
    forget_touches(data_, bytes_);
    const std::lock_guard lock(owners_mutex);
    std::ranges::replace(owners(), this, nullptr);
    tracked().erase(this);
    taken_bytes -= kind_ == Kind::device || kind_ == Kind::managed ? bytes_ : 0;
    char* const end = data_ + round_up(bytes_, alignment);
    const size_t pages = round_up(bytes_, page_bytes());
    // Mapped anew without access: gives the memory back and makes use after free fault.
    mmap(end - pages, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
}

std::string Buffer::outside(const char* address) const {
    if (address == end) {
        return "just past the end of " + name;
    }
    return (address < begin
                ? plural(static_cast<size_t>(begin - address), "byte") + " before the start of "
                : plural(static_cast<size_t>(address - end), "byte") + " past the end of ") +
           name;
}

void DeviceMemory::declare(size_t offset, size_t bytes, const std::string& name) {
    name_ = name;
    declared_begin_ = data_ + offset;
    declared_end_ = declared_begin_ + bytes;
    begin_parts();
    add_part(declared_begin_, bytes, name);
}

void DeviceMemory::add_part(char* begin, size_t bytes, const std::string& name) {
    char* const end = begin + bytes;
    if (begin < declared_begin_ || end > declared_end_) {
        throw Error("a workspace of " +
                    plural(static_cast<size_t>(declared_end_ - declared_begin_), "byte") +
                    " is too small: " + name + " ends after " +
                    plural(static_cast<size_t>(end - declared_begin_), "byte"));
    }
    buffers_.push_back({begin, end, name, next_number(), false, false, nullptr});
}

const Buffer* DeviceMemory::buffer_near(const char* address) const {
    const Buffer* const before = last_before(buffers_, address);
    return before != nullptr || buffers_.empty() ? before : &buffers_.front();
}

void DeviceMemory::track_writes() {
    written_ = std::make_unique<WrittenBytes>(data_, bytes_);
    const std::lock_guard lock(owners_mutex);
    tracked().insert(this);
}

} // namespace flash::simt
