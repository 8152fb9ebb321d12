#include "common/simt/machine/device_heap.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/fault.hpp"

namespace flash::simt {
namespace {

constexpr size_t granule = 16;
constexpr size_t gap = 16; // behind what is given, so that an overrun shows

struct Piece {
    size_t bytes;
    bool freed = false;
};

struct Heap {
    std::mutex mutex;
    std::unique_ptr<DeviceMemory> memory;
    std::map<char*, Piece> pieces;              // by their beginnings
    std::multimap<size_t, char*> free;          // by their sizes
    std::vector<std::pair<size_t, char*>> late; // free from the next launch on
    size_t used = 0;                            // from the beginning on
    size_t given = 0;                           // and not freed
};

Heap& heap() {
    static Heap& own = *new Heap; // never goes: what its end needs may have gone by then
    return own;
}

size_t whole(size_t bytes) {
    return (std::max<size_t>(bytes, 1) + granule - 1) / granule * granule;
}

/// Addresses for much more than is given at a time, because they are not given twice in a launch.
void make(Heap& own) {
    const size_t bytes = std::min(size_t{1} << 30, arena().bytes / 8);
    own.memory = std::make_unique<DeviceMemory>(bytes, DeviceMemory::Kind::heap);
    own.memory->declare(0, bytes, "the device heap");
    own.memory->track_writes();
    own.memory->written()->close(own.memory->data(), bytes);
}

} // namespace

void* allocate_on_heap(size_t bytes) {
    Heap& own = heap();
    const std::lock_guard lock(own.mutex);
    if (own.memory == nullptr) {
        make(own);
    }
    const size_t size = whole(bytes);
    if (size > device_heap_limit || own.given + size > device_heap_limit) {
        return nullptr;
    }
    char* begin = nullptr;
    if (const auto known = own.free.find(size); known != own.free.end()) {
        begin = known->second;
        own.free.erase(known);
    } else if (own.used + size + gap <= own.memory->bytes()) {
        begin = own.memory->data() + own.used;
        own.used += size + gap;
    } else {
        return nullptr;
    }
    own.given += size;
    own.pieces[begin] = {bytes};
    std::memset(begin, 0xff, size + gap); // as all fresh memory
    if (own.memory->written() != nullptr) {
        own.memory->written()->open(begin, bytes);
    }
    return begin;
}

bool is_on_heap(const void* address) {
    return arena().contains(address) && memory_around(address) != nullptr &&
           memory_around(address)->kind() == DeviceMemory::Kind::heap;
}

bool free_on_heap(void* address) {
    Heap& own = heap();
    const std::lock_guard lock(own.mutex);
    const auto found = own.pieces.find(static_cast<char*>(address));
    if (found == own.pieces.end() || found->second.freed) {
        return false;
    }
    found->second.freed = true;
    const size_t size = whole(found->second.bytes);
    own.given -= size;
    own.late.emplace_back(size, found->first);
    std::memset(found->first, 0xff, size);
    if (own.memory->written() != nullptr) {
        own.memory->written()->close(found->first, size);
    }
    return true;
}

std::string outside_of_heap(const void* address) {
    Heap& own = heap();
    const std::lock_guard lock(own.mutex);
    const auto* const place = static_cast<const char*>(address);
    const auto next = own.pieces.upper_bound(const_cast<char*>(place));
    if (next == own.pieces.begin()) {
        return "before all that kernels asked for by malloc or new";
    }
    const auto& [begin, piece] = *std::prev(next);
    const auto distance = static_cast<size_t>(place - begin);
    const std::string name = plural(piece.bytes, "byte") + " that a kernel asked for";
    return distance < piece.bytes
               ? "at byte " + std::to_string(distance) + " of " + name +
                     (piece.freed ? " and has freed" : "")
               : plural(distance - piece.bytes, "byte") + " past the end of " + name;
}

void recycle_heap() {
    Heap& own = heap();
    const std::lock_guard lock(own.mutex);
    own.free.insert(own.late.begin(), own.late.end());
    own.late.clear();
}

} // namespace flash::simt
