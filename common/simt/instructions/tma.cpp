#include "common/simt/instructions/tma.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/simt/instructions/mbarrier.hpp"
#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

[[noreturn]] void refuse(const AsyncWork& work, FaultKind kind, const std::string& summary) {
    current_block().refuse(kind, summary, work.operation, work.location);
}

char* swizzled(char* address, size_t row_bytes) {
    return reinterpret_cast<char*>(swizzle(reinterpret_cast<size_t>(address), row_bytes));
}

/// The chunks of a run of bytes; in shared memory, `shared` is where it begins before the swizzle
/// of rows of `row_bytes`. 0: there is none.
void add_chunks(char* global, char* shared, unsigned bytes, size_t row_bytes,
                std::vector<Chunk>& chunks) {
    while (bytes > 0) {
        const unsigned room = 16 - static_cast<unsigned>(reinterpret_cast<size_t>(shared) % 16);
        const unsigned now = std::min(room, bytes);
        chunks.push_back({global, row_bytes > 0 ? swizzled(shared, row_bytes) : shared, now});
        global += now;
        shared += now;
        bytes -= now;
    }
}

/// The chunks of a box that lie inside the tensor. Addresses are computed modulo 2^64, as on a GPU.
std::vector<Chunk> chunks_inside(const TensorMap& map, const int* at, char* shared) {
    const int64_t element = dtype_bytes(map.type);
    const int64_t first = std::max<int64_t>(0, -int64_t{at[0]});
    const int64_t end = std::min<int64_t>(map.box[0], map.sizes[0] - at[0]);
    const int64_t row_bytes = map.box[0] * element;
    std::vector<Chunk> chunks;
    int step[5] = {}; // of each dimension; dimension 0 goes by in one
    for (int64_t row = 0;; ++row) {
        auto address = reinterpret_cast<uint64_t>(map.base);
        address += static_cast<uint64_t>((at[0] + first) * element);
        bool inside = first < end;
        for (int i = 1; i < map.rank; ++i) {
            const int64_t coordinate = int64_t{at[i]} + step[i];
            inside = inside && coordinate >= 0 && coordinate < map.sizes[i];
            address += static_cast<uint64_t>(coordinate) * static_cast<uint64_t>(map.strides[i]);
        }
        if (inside) {
            add_chunks(reinterpret_cast<char*>(address), shared + row * row_bytes + first * element,
                       static_cast<unsigned>((end - first) * element),
                       static_cast<size_t>(row_bytes), chunks);
        }
        int i = 1;
        while (i < map.rank && ++step[i] == map.box[i]) {
            step[i++] = 0;
        }
        if (i >= map.rank) {
            return chunks;
        }
    }
}

unsigned box_bytes(const TensorMap& map) {
    unsigned bytes = static_cast<unsigned>(dtype_bytes(map.type));
    for (int i = 0; i < map.rank; ++i) {
        bytes *= static_cast<unsigned>(map.box[i]);
    }
    return bytes;
}

void check_shared(const AsyncWork& work, const char* shared, size_t bytes, size_t alignment) {
    const Block& block = current_block();
    const SharedMemory& memory = block.shared();
    if (block.space_of(shared) != Space::shared) {
        refuse(work, FaultKind::out_of_bounds,
               "out of bounds: an address that is not in shared memory");
    }
    const std::string place =
        memory.is_dynamic(shared)
            ? "byte " + std::to_string(shared - memory.dynamic()) + " of the dynamic shared memory"
            : "an address of shared memory";
    if (memory.is_dynamic(shared) &&
        (shared < memory.dynamic() || shared + bytes > memory.dynamic() + memory.dynamic_bytes())) {
        refuse(work, FaultKind::out_of_bounds,
               "out of bounds: a tile of " + plural(bytes, "byte") + " at " + place + " (" +
                   plural(memory.dynamic_bytes(), "byte") + ")");
    }
    if (reinterpret_cast<size_t>(shared) % alignment != 0) {
        refuse(work, FaultKind::misaligned,
               "misaligned: " + place + " is no multiple of " + std::to_string(alignment) +
                   (alignment == 1024 ? ", where a tile under the 128-byte swizzle begins" : ""));
    }
}

const Buffer* buffer_near(const void* global) {
    return global_space().contains(global) ? buffer_around(global) : nullptr;
}

/// Loads on a GPU have faulted where nothing was at their map's beginning, although no box led
/// there. Stores do not: libraries begin maps for them ahead of the tensor.
void check_begin(const AsyncWork& work, const TensorMap& map) {
    const Buffer* const buffer = buffer_near(map.base);
    if (buffer == nullptr || !buffer->contains(map.base, 1)) {
        refuse(work, FaultKind::out_of_bounds,
               "out of bounds: the tensor map begins " +
                   (buffer == nullptr ? "in no buffer" : buffer->outside(map.base)) +
                   ": the copy engine faults there even if no box does");
    }
}

/// All chunks lie in one buffer: the tensor's.
void check_global(const AsyncWork& work, const std::vector<Chunk>& chunks) {
    if (chunks.empty()) {
        return;
    }
    const auto [low, high] = std::ranges::minmax_element(chunks, {}, &Chunk::global);
    const Buffer* const buffer = buffer_near(low->global);
    const std::string leads =
        std::string("out of bounds: ") +
        (std::string(work.operation).starts_with("tma") ? "the tensor map" : "it") + " leads ";
    if (buffer == nullptr) {
        refuse(work, FaultKind::out_of_bounds, leads + "to no buffer in global memory");
    }
    if (low->global < buffer->begin) {
        refuse(work, FaultKind::out_of_bounds, leads + buffer->outside(low->global));
    }
    if (high->global + high->bytes > buffer->end) {
        refuse(work, FaultKind::out_of_bounds, leads + buffer->outside(high->global + high->bytes));
    }
}

/// A copy that needs no tensor map.
void check_run(const AsyncWork& work, const void* global, int bytes, const char* what) {
    if (bytes <= 0 || bytes % 16 != 0 || reinterpret_cast<size_t>(global) % 16 != 0) {
        refuse(work, FaultKind::misaligned,
               std::string("misaligned: ") + what + " of " + std::to_string(bytes) +
                   " bytes; addresses and sizes are multiples of 16");
    }
}

/// The number of dimensions; and the first coordinate, which begins at a multiple of 16 bytes. (A
/// GPU calls another one an illegal instruction.)
void check_coordinates(const AsyncWork& work, const TensorMap& map, int rank, const int* at) {
    if (map.rank != rank) {
        refuse(work, FaultKind::invalid_access,
               std::to_string(rank) + " coordinates for a tensor map of " +
                   std::to_string(map.rank) + " dimensions");
    }
    if (at[0] * dtype_bytes(map.type) % 16 != 0) {
        refuse(work, FaultKind::misaligned,
               "misaligned: coordinate " + std::to_string(at[0]) +
                   " of the innermost dimension is no multiple of 16 bytes, which is " +
                   plural(static_cast<size_t>(16 / dtype_bytes(map.type)), "element"));
    }
}

void move(const BulkStore& store) {
    for (const Chunk& chunk : store.chunks) {
        if (!store.adds) {
            std::memcpy(chunk.global, chunk.shared, chunk.bytes);
            continue;
        }
        // other workers may add here too
        for (unsigned offset = 0; offset < chunk.bytes; offset += sizeof(float)) {
            float term = 0;
            std::memcpy(&term, chunk.shared + offset, sizeof term);
            std::atomic_ref(*reinterpret_cast<float*>(chunk.global + offset)).fetch_add(term);
        }
    }
}

ThreadStores& stores_of(const Caller& caller) {
    return caller.block.state<BulkStores>().of_thread[caller.thread.number];
}

void begin_flight(BulkStore&& store) {
    const Caller caller;
    ThreadStores& stores = stores_of(caller);
    store.group = stores.committed;
    stores.begun = store.group + 1;
    caller.block.observers().tell(&Observer::start_store, store);
    if (options().cp_async == CpAsync::early) {
        move(store);
    }
    stores.pending.push_back(std::move(store));
}

/// Stores or adds bytes that lie side by side.
void store_run(const char* operation, bool adds, void* global, const void* shared, int bytes,
               SourceLocation location) {
    const RuntimeCode runtime;
    BulkStore store{current_block().new_work(operation, location), adds, {}, 0};
    auto* const from = static_cast<char*>(const_cast<void*>(shared));
    check_run(store.work, global, bytes, adds ? "a bulk reduction" : "a bulk store");
    check_shared(store.work, from, static_cast<size_t>(bytes), 16);
    add_chunks(static_cast<char*>(global), from, static_cast<unsigned>(bytes), 0, store.chunks);
    check_global(store.work, store.chunks);
    begin_flight(std::move(store));
}

} // namespace

void BulkStores::check_leaving(Block& block, unsigned thread) const {
    if (!of_thread[thread].pending.empty()) {
        const AsyncWork& store = of_thread[thread].pending.front().work;
        block.stop(
            Fault(FaultKind::async_copy_in_flight,
                  std::string("a thread leaves the kernel before its ") + store.operation +
                      " has read shared memory",
                  block.here("starts it", store.location),
                  "the shared memory may belong to another block by then: commit, and wait for all "
                  "groups (bulk_wait_read<0>)")
                .named("left_too_early"));
    }
}

void tma_load(void* shared, const TensorMap& map, int rank, const int* at, uint64_t* mbarrier,
              SourceLocation location) {
    const RuntimeCode runtime;
    BulkLoad load{current_block().new_work("tma_load", location),
                  static_cast<char*>(shared),
                  box_bytes(map),
                  {},
                  mbarrier};
    check_coordinates(load.work, map, rank, at);
    check_begin(load.work, map);
    check_shared(load.work, load.shared, load.bytes, 1024);
    load.inside = chunks_inside(map, at, load.shared);
    check_global(load.work, load.inside);
    begin_flight(std::move(load));
}

void bulk_load(void* shared, const void* global, int bytes, uint64_t* mbarrier,
               SourceLocation location) {
    const RuntimeCode runtime;
    BulkLoad load{current_block().new_work("bulk_load", location),
                  static_cast<char*>(shared),
                  static_cast<unsigned>(bytes),
                  {},
                  mbarrier};
    check_run(load.work, global, bytes, "a bulk load");
    check_shared(load.work, load.shared, load.bytes, 16);
    add_chunks(const_cast<char*>(static_cast<const char*>(global)), load.shared, load.bytes, false,
               load.inside);
    check_global(load.work, load.inside);
    begin_flight(std::move(load));
}

void land(const BulkLoad& load) {
    std::memset(load.shared, 0, load.bytes);
    for (const Chunk& chunk : load.inside) {
        std::memcpy(chunk.shared, chunk.global, chunk.bytes);
    }
}

void tma_store(const TensorMap& map, int rank, const int* at, const void* shared,
               SourceLocation location) {
    const RuntimeCode runtime;
    BulkStore store{current_block().new_work("tma_store", location), false, {}, 0};
    auto* const from = const_cast<char*>(static_cast<const char*>(shared));
    check_coordinates(store.work, map, rank, at);
    // A load may begin before the tensor. A store may not: a GPU calls it an illegal instruction.
    for (int i = 0; i < rank; ++i) {
        if (at[i] < 0) {
            refuse(store.work, FaultKind::out_of_bounds,
                   "a store begins before the tensor: its coordinate " + std::to_string(i) +
                       " is " + std::to_string(at[i]));
        }
    }
    // a GPU writes the last 16 bytes of a row whole
    if (map.sizes[0] * dtype_bytes(map.type) % 16 != 0) {
        refuse(store.work, FaultKind::out_of_bounds,
               "a store would write beyond the tensor's columns: its rows have " +
                   std::to_string(map.sizes[0]) + " elements, and that is no multiple of 16 bytes");
    }
    check_shared(store.work, from, box_bytes(map), 1024);
    store.chunks = chunks_inside(map, at, from);
    check_global(store.work, store.chunks);
    begin_flight(std::move(store));
}

void bulk_store(void* global, const void* shared, int bytes, SourceLocation location) {
    store_run("bulk_store", false, global, shared, bytes, location);
}

void bulk_reduce_add(float* global, const float* shared, int bytes, SourceLocation location) {
    store_run("bulk_reduce_add", true, global, shared, bytes, location);
}

void bulk_commit(SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"bulk_commit", location});
    ++stores_of(caller).committed;
}

void wait_bulk_stores(unsigned in_flight, bool reads_only, SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct,
                 {reads_only ? "bulk_wait_read" : "bulk_wait", location, nullptr, in_flight});
    ThreadStores& stores = stores_of(caller);
    if (stores.committed <= in_flight) {
        return;
    }
    const uint32_t groups = stores.committed - in_flight;
    stores.written = reads_only ? stores.written : groups;
    const auto end = std::ranges::find_if(
        stores.pending, [&](const BulkStore& store) { return store.group >= groups; });
    if (options().cp_async == CpAsync::late) {
        std::for_each(stores.pending.begin(), end, move);
    }
    stores.pending.erase(stores.pending.begin(), end);
    caller.tells(&Observer::wait_for_stores, groups);
}

void fence_proxy_async(SourceLocation location) {
    const Caller caller;
    caller.tells(&Observer::instruct, {"fence_proxy_async", location});
    caller.tells(&Observer::fence_proxy);
}

} // namespace flash::simt
