// What a line of a kernel costs in memory traffic, counted as the hardware's own counters count it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace flash::simt {

inline constexpr unsigned sector_bytes = 32; // the least that global memory moves

/// Requests (instructions of a warp) to global memory.
struct GlobalTraffic {
    uint64_t requests = 0;
    uint64_t bytes = 0; // that the lanes asked for
    uint64_t sectors = 0;
    uint64_t ideal = 0; // sectors if the bytes of each request lay side by side
};

/// Requests to shared memory. A wavefront is one pass through the 32 banks; a request needs several
/// when lanes want different words of one bank (a conflict), or more than 128 bytes.
struct SharedTraffic {
    uint64_t requests = 0;
    uint64_t bytes = 0;
    uint64_t wavefronts = 0;
    uint64_t ideal = 0; // wavefronts if no two words shared a bank
};

/// Copies by TMA, each asked for by one thread.
struct EngineTraffic {
    uint64_t requests = 0;
    // a load's with the zeros for what is beyond the tensor, as the hardware counts
    uint64_t bytes = 0;
};

/// Everything counts instructions of warps, except barriers, which are counted once per block.
struct Counters {
    GlobalTraffic global_load, global_store;
    SharedTraffic shared_load, shared_store; // ldmatrix is a load
    SharedTraffic async_store; // cp.async: its write to shared memory; its read is a global load
    uint64_t barriers = 0;
    uint64_t collectives = 0; // shuffles, votes, __syncwarp
    uint64_t mma = 0;
    uint64_t ldmatrix = 0;
    uint64_t cp_async = 0;
    uint64_t atomics = 0;
    GlobalTraffic global_atomic;                    // of the atomics, those in global memory
    EngineTraffic tma_load, tma_store, bulk_reduce; // the last one adds
    // by the columns of C, in eights: each warp of a warpgroup counts; behind them those of e4m3
    std::array<uint64_t, 66> wgmma{};
};

/// One of these structures: its members are 64-bit numbers and nothing else, so they can be added
/// up as an array.
template <class T>
concept Counts = std::is_aggregate_v<T> && std::has_unique_object_representations_v<T>;

template <Counts T> T& operator+=(T& sum, const T& more) {
    using Numbers = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;
    auto numbers = std::bit_cast<Numbers>(sum);
    std::ranges::transform(numbers, std::bit_cast<Numbers>(more), numbers.begin(), std::plus<>());
    return sum = std::bit_cast<T>(numbers);
}

/// Wavefronts that one request needs: `words[lane]` is the first 4-byte word of the lane's access.
/// A wavefront serves 32 lanes of up to 4 bytes, 16 lanes of 8 bytes or 8 lanes of 16 bytes.
struct Wavefronts {
    unsigned needed = 0, ideal = 0;
};
Wavefronts wavefronts(uint32_t lanes, const uint32_t (&words)[32], unsigned bytes);

/// Different values among those of `lanes`.
unsigned count_distinct(uint32_t lanes, const uint32_t (&values)[32]);

} // namespace flash::simt
