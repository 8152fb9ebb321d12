// Twin of common/cuda/ptx/tma.hpp. The copy engine moves boxes of a tensor, and runs of bytes,
// between global and shared memory.
//
// Under the 128-byte swizzle the 16-byte piece at an address of shared memory changes places within
// its 128 bytes: address bits 4 to 6 are XORed with bits 7 to 9. Under the 64-byte swizzle, that of
// rows half as wide, bits 4 and 5 are XORed with bits 7 and 8.
#pragma once

#include <cstdint>
#include <vector>

#include "common/simt/language/tensor_map.hpp"
#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/instruction_state.hpp"

namespace flash {
namespace simt {

/// What the copy engine moves: at most 16 bytes, which lie in one such piece of shared memory.
struct Chunk {
    char* global;
    char* shared;
    unsigned bytes;
};

/// From global to shared memory. When it lands, its bytes count at an mbarrier.
struct BulkLoad {
    AsyncWork work;
    char* shared;
    unsigned bytes;            // of the whole box
    std::vector<Chunk> inside; // the tensor; the rest is filled with zeros
    const void* mbarrier;
};

/// From shared to global memory, in a group of its thread.
struct BulkStore {
    AsyncWork work;
    bool adds; // fp32, in place of writing
    std::vector<Chunk> chunks;
    uint32_t group; // how many the thread had committed before
};

/// Stores of one thread that have not been waited for, and its groups.
struct ThreadStores {
    std::vector<BulkStore> pending; // in the order of their groups
    uint32_t committed = 0;         // groups
    uint32_t written = 0; // groups that have been waited for to the end, global memory included
    uint32_t begun = 0;   // groups up to the last one with a store
    bool unfinished() const { return begun > written; }
};

class BulkStores final : public InstructionState {
  public:
    std::vector<ThreadStores> of_thread;

    void begin_block(unsigned threads) override { of_thread.assign(threads, {}); }
    void check_leaving(Block& block, unsigned thread) const override;
};

/// Where a byte of rows of 128 or 64 bytes lies.
constexpr size_t swizzle(size_t address, size_t row_bytes) {
    return address ^ (address >> 7 & (row_bytes == 128 ? 7 : 3)) << 4;
}

// The current thread starts a copy. Coordinates are elements, innermost first.
void tma_load(void* shared, const TensorMap& map, int rank, const int* at, uint64_t* mbarrier,
              SourceLocation location);
void tma_store(const TensorMap& map, int rank, const int* at, const void* shared,
               SourceLocation location);
void bulk_load(void* shared, const void* global, int bytes, uint64_t* mbarrier,
               SourceLocation location = SourceLocation::here());
void bulk_store(void* global, const void* shared, int bytes,
                SourceLocation location = SourceLocation::here());
void bulk_reduce_add(float* global, const float* shared, int bytes,
                     SourceLocation location = SourceLocation::here());
void bulk_commit(SourceLocation location = SourceLocation::here());

/// Waits until at most `in_flight` of this thread's groups are under way, or at least read no
/// shared memory any more.
void wait_bulk_stores(unsigned in_flight, bool reads_only, SourceLocation location);

/// Moves the data of a load: its last moment has come.
void land(const BulkLoad& load);

void fence_proxy_async(SourceLocation location = SourceLocation::here());

} // namespace simt

template <int rank>
inline void tma_load(void* smem, const TensorMap& map, const int (&at)[rank], uint64_t* barrier,
                     simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::tma_load(smem, map, rank, at, barrier, location);
}
template <int rank>
inline void tma_store(const TensorMap& map, const int (&at)[rank], const void* smem,
                      simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::tma_store(map, rank, at, smem, location);
}
using simt::bulk_commit;
using simt::bulk_load;
using simt::bulk_reduce_add;
using simt::bulk_store;
using simt::fence_proxy_async;
template <int InFlight>
inline void bulk_wait_read(simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::wait_bulk_stores(InFlight, true, location);
}
template <int InFlight>
inline void bulk_wait(simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::wait_bulk_stores(InFlight, false, location);
}

} // namespace flash
