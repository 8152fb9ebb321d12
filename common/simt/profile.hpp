// What kernels cost, kernel by kernel, line by line and buffer by buffer, since counting began.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/simt/counters.hpp"
#include "common/simt/launch.hpp"
#include "common/simt/origin.hpp"

namespace flash::simt {

class DeviceMemory;

struct BufferTraffic {
    std::string name; // as the harness declared it: "Q"
    const void* begin = nullptr;
    uint64_t bytes = 0;
    GlobalTraffic load, store;
};

/// What one OS thread counted during one launch. Buffers by their number, in the order of allocation.
struct Tally {
    std::unordered_map<uint32_t, Counters> lines; // by Origin::number()
    std::map<uint64_t, BufferTraffic> buffers;
    void clear();
};

struct LineProfile {
    SourceLine line;
    Counters counters;
};

struct KernelProfile {
    std::string name;
    uint64_t launches = 0;
    dim3 grid, block;        // of the last launch
    size_t shared_bytes = 0; // a block; of the last launch
    Counters total;
    std::vector<LineProfile> lines;     // in the order of the source
    std::vector<BufferTraffic> buffers; // in the order of their allocation
};

/// Adds what the workers counted during a launch.
void add_to_profile(const std::string& kernel, const Launch& launch, size_t shared_bytes,
                    const std::vector<Tally*>& tallies);

/// Kernels in the order of their first launch.
std::vector<KernelProfile> profile();

void clear_profile();

} // namespace flash::simt
