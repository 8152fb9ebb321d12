#include "common/simt/report/profile.hpp"

namespace flash::simt {

std::vector<KernelProfile> profile() {
    std::vector<KernelProfile> kernels;
    for (const KernelTally& known : tallies()) {
        KernelProfile& kernel = kernels.emplace_back(KernelProfile{known, {}, {}, {}});
        std::vector<LocationId> origins;
        for (const auto& [origin, counters] : known.tally.lines) {
            origins.push_back(origin);
            kernel.total += counters;
        }
        const std::vector<SourceLine> lines = resolve(origins);
        for (size_t i = 0; i < origins.size(); ++i) {
            kernel.lines[lines[i]] += known.tally.lines.at(origins[i]);
        }
        for (const auto& [number, traffic] : known.tally.buffers) {
            kernel.buffers.push_back(traffic);
        }
    }
    return kernels;
}

Findings findings(const Counters& counters) {
    const auto uncoalesced = [](const GlobalTraffic& traffic) {
        return static_cast<double>(traffic.sectors) > 1.3 * static_cast<double>(traffic.ideal);
    };
    const auto conflicted = [](const SharedTraffic& traffic) {
        return static_cast<double>(traffic.wavefronts) > 1.1 * static_cast<double>(traffic.ideal);
    };
    return {conflicted(counters.shared_load) || conflicted(counters.shared_store) ||
                conflicted(counters.async_store),
            uncoalesced(counters.global_load) || uncoalesced(counters.global_store)};
}

void clear_profile() { tallies().clear(); }

} // namespace flash::simt
