// Work that goes on beside the threads: cp.async, that of the copy engine (TMA) and that of the
// tensor cores (wgmma).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/simt/machine/site.hpp"
#include "common/types.hpp"

namespace flash::simt {

struct AsyncWork {
    uint32_t number;       // of the block's works, in the order in which they began
    unsigned thread;       // that began it; of a warpgroup, the first
    const char* operation; // "tma_load"
    Site site;
};

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

/// 16 bytes of an operand of wgmma in shared memory.
using OperandRow = const char*;

/// A product of a warpgroup: C (+)= A B with C 64 x columns, A 64 x 16, B 16 x columns.
struct Wgmma {
    AsyncWork work;
    uint32_t group; // how many the warpgroup had committed before
    DType type;
    unsigned columns;
    bool accumulate;
    // a row of 16 bytes holds 8 rows or columns of one k; else 8 k of one
    bool A_transposed, B_transposed;
    // of each warp, 32 of them; empty if A comes from registers
    std::array<std::vector<OperandRow>, 4> A;
    std::vector<OperandRow> B;
    std::vector<std::array<uint32_t, 4>> fragments; // of A, by thread, if it comes from registers
    std::array<const uint32_t*, 128> registers{};   // that held them
    std::array<float*, 128> C{};                    // by thread, columns / 2 each
};

} // namespace flash::simt
