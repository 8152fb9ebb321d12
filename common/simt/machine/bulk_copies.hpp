// The copy engine (TMA): boxes of a tensor, and runs of bytes, between global and shared memory.
//
// Under the 128-byte swizzle the 16-byte piece at an address of shared memory changes places within
// its 128 bytes: address bits 4 to 6 are XORed with bits 7 to 9.
#pragma once

#include <cstdint>
#include <vector>

#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/tensor_map.hpp"

namespace flash::simt {

/// Stores of one thread that have not been waited for, and its groups.
struct BulkStores {
    std::vector<BulkStore> pending; // in the order of their groups
    uint32_t committed = 0;         // groups
    uint32_t written = 0; // groups that have been waited for to the end, global memory included
    uint32_t begun = 0;   // groups up to the last one with a store
    bool unfinished() const { return begun > written; }
};

constexpr size_t swizzle_128(size_t address) { return address ^ (address >> 7 & 7) << 4; }

// The current thread starts a copy. Coordinates are elements, innermost first.
void tma_load(void* shared, const TensorMap& map, int rank, const int* at, uint64_t* mbarrier,
              Site site);
void tma_store(const TensorMap& map, int rank, const int* at, const void* shared, Site site);
void bulk_load(void* shared, const void* global, int bytes, uint64_t* mbarrier,
               Site site = Site::here());
void bulk_store(void* global, const void* shared, int bytes, Site site = Site::here());
void bulk_reduce_add(float* global, const float* shared, int bytes, Site site = Site::here());
void bulk_commit();

/// Waits until at most `in_flight` of this thread's groups are under way, or at least read no
/// shared memory any more.
void wait_bulk_stores(unsigned in_flight, bool reads_only);

/// Moves the data of a load: its last moment has come.
void land(const BulkLoad& load);

void fence_proxy_async();

} // namespace flash::simt
