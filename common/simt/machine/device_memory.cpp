#include "common/simt/machine/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "common/attention.hpp"
#include "common/simt/machine/fault.hpp"

namespace flash::simt {
namespace {

constexpr size_t alignment = 256; // as cudaMalloc gives
constexpr size_t slot_bytes = size_t{1} << 21;
constexpr size_t slots = Arena::bytes / slot_bytes;

/// 4 KiB on most systems, 64 KiB on some with AArch64.
size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

constexpr size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

Arena reserve() {
    // Addresses only: no memory stands behind them until a buffer asks for it.
    void* const begin =
        mmap(nullptr, Arena::bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
        throw Error("cannot reserve 128 GiB of addresses for the SIMT backend's global memory\n"
                    "is the address space limited (ulimit -v)?");
    }
    return {static_cast<char*>(begin)};
}

/// Which memory owns each slot of the arena. It owns whole slots, the last page of the last one is
/// its guard.
std::vector<DeviceMemory*>& owners() {
    static std::vector<DeviceMemory*> table(slots);
    return table;
}
std::mutex owners_mutex;

uint64_t next_number() {
    static std::atomic<uint64_t> count = 0;
    return count++;
}

size_t slots_for(size_t bytes) {
    return (round_up(bytes, page_bytes()) + page_bytes() + slot_bytes - 1) / slot_bytes;
}

} // namespace

const Arena& arena() {
    static const Arena reserved = reserve();
    return reserved;
}

DeviceMemory* memory_around(const void* address) {
    return owners()[static_cast<size_t>(static_cast<const char*>(address) - arena().begin) /
                    slot_bytes];
}

const Buffer* buffer_around(const void* address) {
    const DeviceMemory* const memory = memory_around(address);
    return memory == nullptr ? nullptr : memory->buffer_near(static_cast<const char*>(address));
}

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes) {
    const std::lock_guard lock(owners_mutex);
    auto& table = owners();
    const auto refuse = [&](const std::string& reason) {
        throw Error("not enough memory: a buffer of " + std::to_string(bytes) + " bytes " + reason);
    };
    const size_t wanted = bytes <= Arena::bytes ? slots_for(bytes) : slots;
    // A free slot before each buffer too, so that its lower end is guarded.
    const auto free = std::search_n(table.begin(), table.end(), wanted + 1, nullptr);
    if (free == table.end()) {
        refuse("does not fit the " + std::to_string(Arena::bytes) +
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
    std::memset(data_, 0xff, bytes); // NaN in every type: a GPU's fresh memory is not zero either
    declare(0, bytes, "a buffer in global memory");
}

DeviceMemory::~DeviceMemory() {
    const std::lock_guard lock(owners_mutex);
    std::ranges::replace(owners(), this, nullptr);
    char* const end = data_ + round_up(bytes_, alignment);
    const size_t pages = round_up(bytes_, page_bytes());
    // Mapped anew without access: gives the memory back and makes use after free fault.
    mmap(end - pages, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
}

std::string Buffer::outside(const char* address) const {
    return (address < begin
                ? plural(static_cast<size_t>(begin - address), "byte") + " before the start of "
                : plural(static_cast<size_t>(address - end), "byte") + " past the end of ") +
           name;
}

void DeviceMemory::declare(size_t offset, size_t bytes, const std::string& name) {
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
    buffers_.push_back({begin, end, name, next_number(), nullptr});
}

const Buffer* DeviceMemory::buffer_near(const char* address) const {
    const Buffer* near = buffers_.empty() ? nullptr : &buffers_.front();
    for (const Buffer& buffer : buffers_) {
        near = buffer.begin <= address ? &buffer : near;
    }
    return near;
}

} // namespace flash::simt
