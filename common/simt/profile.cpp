#include "common/simt/profile.hpp"

#include <algorithm>

#include "common/simt/device_memory.hpp"

namespace flash::simt {
namespace {

struct Collected {
    KernelProfile kernel; // its lines are found out when somebody asks
    std::map<Origin, Counters> origins;
    std::map<uint64_t, BufferTraffic> buffers;
};

std::vector<Collected>& collected() {
    static std::vector<Collected> kernels;
    return kernels;
}

} // namespace

BufferTraffic& Tally::of(const DeviceMemory& buffer) {
    BufferTraffic& traffic = buffers[buffer.number()];
    if (traffic.begin == nullptr) {
        traffic = {std::string(buffer.name()),
                   buffer.valid_begin(),
                   static_cast<uint64_t>(buffer.valid_end() - buffer.valid_begin()),
                   {},
                   {}};
    }
    return traffic;
}

void Tally::clear() {
    lines.clear();
    buffers.clear();
    recent_ = {};
}

void add_to_profile(const std::string& kernel, const Launch& launch, size_t shared_bytes,
                    const std::vector<Tally*>& tallies) {
    auto& all = collected();
    auto found = std::ranges::find_if(all, [&](const Collected& known) { return known.kernel.name == kernel; });
    if (found == all.end()) {
        all.emplace_back().kernel.name = kernel;
        found = all.end() - 1;
    }
    ++found->kernel.launches;
    found->kernel.grid = launch.grid;
    found->kernel.block = launch.block;
    found->kernel.shared_bytes = shared_bytes;
    for (const Tally* const tally : tallies) {
        for (const auto& [origin, counters] : tally->lines) {
            found->origins[origin] += counters;
            found->kernel.total += counters;
        }
        for (const auto& [number, traffic] : tally->buffers) {
            BufferTraffic& sum = found->buffers[number];
            const GlobalTraffic load = sum.load;
            const GlobalTraffic store = sum.store;
            sum = traffic;
            sum.load += load;
            sum.store += store;
        }
    }
}

std::vector<KernelProfile> profile() {
    std::vector<KernelProfile> kernels;
    for (const Collected& known : collected()) {
        KernelProfile kernel = known.kernel;
        std::vector<Origin> origins;
        for (const auto& [origin, counters] : known.origins) {
            origins.push_back(origin);
        }
        const std::vector<SourceLine> lines = resolve(origins);
        std::map<SourceLine, Counters> by_line;
        for (size_t i = 0; i < origins.size(); ++i) {
            by_line[lines[i]] += known.origins.at(origins[i]);
        }
        for (const auto& [line, counters] : by_line) {
            kernel.lines.push_back({line, counters});
        }
        for (const auto& [number, traffic] : known.buffers) {
            kernel.buffers.push_back(traffic);
        }
        kernels.push_back(std::move(kernel));
    }
    return kernels;
}

void clear_profile() { collected().clear(); }

} // namespace flash::simt
