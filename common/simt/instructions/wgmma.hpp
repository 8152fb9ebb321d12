// Twin of common/cuda/ptx/wgmma.hpp: products of a warpgroup (four warps) whose operands lie in
// shared memory, and which go on beside its threads.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "common/simt/machine/async_work.hpp"
#include "common/simt/machine/instruction_state.hpp"
#include "common/types.hpp"

namespace flash {
namespace simt {

constexpr unsigned warpgroup_threads = 128;

/// 16 bytes of an operand of wgmma in shared memory.
using OperandRow = const char*;

/// A product of a warpgroup: C (+)= A B with C 64 x columns, A 64 x 16, B 16 x columns; of e4m3, A
/// 64 x 32 and B 32 x columns.
struct Wgmma {
    AsyncWork work;
    uint32_t group; // how many the warpgroup had committed before
    DType type;
    unsigned columns;
    bool accumulate;
    // a row of 16 bytes holds 8 rows or columns of one k; else 8 k of one, or 16 of e4m3
    bool A_transposed, B_transposed;
    // for the rows of C that each warp has, 32 of them; empty if A comes from registers
    std::array<std::vector<OperandRow>, 4> A;
    std::vector<OperandRow> B;
    std::vector<std::array<uint32_t, 4>> fragments; // of A, by thread, if it comes from registers
    std::array<const uint32_t*, 128> registers{};   // that held them
    std::array<float*, 128> C{};                    // by thread, columns / 2 each
};

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

/// The groups of products of one thread.
struct WgmmaGroups {
    uint32_t committed = 0;
    uint32_t open = 0;      // with the one that the last product is in
    uint32_t over = 0;      // waited for
    SourceLocation begun{}; // the last product
};

class WgmmaState final : public InstructionState {
  public:
    std::array<TensorCores, 8> cores; // of each warpgroup
    std::vector<WgmmaGroups> groups;  // of each thread

    void begin_block(unsigned threads) override {
        cores.fill({});
        groups.assign(threads, {});
    }
    void check_leaving(Block& block, unsigned thread) const override;
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
/// and the swizzle, by the bytes of a row: 128 or 64.
uint64_t wgmma_descriptor(const void* shared, int leading_bytes, int stride_bytes,
                          int row_bytes = 128, SourceLocation location = SourceLocation::here());

// The current thread, with the others of its warpgroup.
void start_wgmma(const WgmmaCall& call, SourceLocation location);
void wgmma_fence(SourceLocation location = SourceLocation::here());
void wgmma_commit(SourceLocation location = SourceLocation::here());
void wait_wgmma(unsigned in_flight, SourceLocation location);

} // namespace simt

using simt::wgmma_commit;
using simt::wgmma_descriptor;
using simt::wgmma_fence;
template <int InFlight, int n>
inline void wgmma_wait(float (&)[n][4],
                       simt::SourceLocation location = simt::SourceLocation::here()) {
    simt::wait_wgmma(InFlight, location);
}

template <class T, int N, bool transpose_B = false, bool transpose_A = false>
inline void wgmma_m64k16(float (&C)[N / 8][4], uint64_t A, uint64_t B, bool accumulate = true,
                         simt::SourceLocation location = simt::SourceLocation::here()) {
    static_assert(dtype_bytes(dtype_of<T>) == 2 && N % 8 == 0 && N >= 8 && N <= 256);
    simt::start_wgmma({dtype_of<T>, N, transpose_A, transpose_B, accumulate, nullptr, A, B, C[0]},
                      location);
}

template <class T, int N, bool transpose_B = false>
inline void wgmma_m64k16(float (&C)[N / 8][4], const uint32_t (&A)[4], uint64_t B,
                         bool accumulate = true,
                         simt::SourceLocation location = simt::SourceLocation::here()) {
    static_assert(dtype_bytes(dtype_of<T>) == 2 && N % 8 == 0 && N >= 8 && N <= 256);
    simt::start_wgmma({dtype_of<T>, N, false, transpose_B, accumulate, A, 0, B, C[0]}, location);
}

template <int N>
inline void wgmma_m64k32(float (&C)[N / 8][4], uint64_t A, uint64_t B, bool accumulate = true,
                         simt::SourceLocation location = simt::SourceLocation::here()) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    simt::start_wgmma({DType::e4m3, N, false, false, accumulate, nullptr, A, B, C[0]}, location);
}

template <int N>
inline void wgmma_m64k32(float (&C)[N / 8][4], const uint32_t (&A)[4], uint64_t B,
                         bool accumulate = true,
                         simt::SourceLocation location = simt::SourceLocation::here()) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256);
    simt::start_wgmma({DType::e4m3, N, false, false, accumulate, A, 0, B, C[0]}, location);
}

template <int k16> inline void copy_A(uint32_t (&copy)[k16][4], const uint32_t (&A)[k16][4]) {
    for (int k = 0; k < k16; ++k) {
        for (int c = 0; c < 4; ++c) {
            copy[k][c] = A[k][c];
        }
    }
}

} // namespace flash
