// wgmma: products of a warpgroup (four warps) whose operands lie in shared memory, and which go on
// beside its threads.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "common/simt/machine/async_work.hpp"

namespace flash::simt {

constexpr unsigned warpgroup_threads = 128;

/// The registers that hold C while products are under way: 64 x columns, gathered from all threads.
struct Accumulators {
    std::array<float*, warpgroup_threads> C;
    unsigned columns;
    std::vector<float> values;
    uint32_t last_group; // of the last product that adds to it
    std::bitset<warpgroup_threads> handed_out;
};

/// The tensor cores of one warpgroup.
struct TensorCores {
    std::vector<Wgmma> pending; // not executed yet, in order
    std::vector<Accumulators> accumulators;
};

struct WgmmaCall {
    DType type;
    unsigned columns;
    bool A_transposed, B_transposed;
    bool accumulate;
    const uint32_t* fragment; // null: A is in shared memory
    uint64_t A, B;            // descriptors
    float* C;
};

/// Where an operand begins: start address, leading and stride byte offset, in units of 16 bytes,
/// and the swizzle.
uint64_t wgmma_descriptor(const void* shared, int leading_bytes, int stride_bytes,
                          Site site = Site::here());

// The current thread, with the others of its warpgroup.
void start_wgmma(const WgmmaCall& call, Site site);
void wgmma_fence();
void wgmma_commit();
void wait_wgmma(unsigned in_flight);

} // namespace flash::simt
