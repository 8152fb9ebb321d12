// What kernels cost, kernel by kernel, line by line and buffer by buffer, since counting began.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
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
    std::map<Origin, Counters> lines;
    std::map<uint64_t, BufferTraffic> buffers;

    Counters& line(Origin origin) {
        Recent& recent = recent_[origin.number() % recent_.size()];
        if (recent.counters == nullptr || recent.origin != origin) {
            recent = {origin, &lines[origin]};
        }
        return *recent.counters;
    }
    BufferTraffic& of(const DeviceMemory& buffer);
    void clear();

  private:
    struct Recent {
        Origin origin;
        Counters* counters = nullptr;
    };
    std::array<Recent, 256> recent_{}; // spares most searches
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
