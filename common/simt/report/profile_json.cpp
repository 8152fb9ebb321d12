#include <nlohmann/json.hpp>

#include "common/simt/report/profile.hpp"

namespace flash::simt {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GlobalTraffic, requests, bytes, sectors, ideal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedTraffic, requests, bytes, wavefronts, ideal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EngineTraffic, requests, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BufferTraffic, name, bytes, load, store)

namespace {

/// Counts of Hopper's own, and of atomics in global memory, are there only if they are not zero.
nlohmann::json json_of(const Counters& counters) {
    nlohmann::json all = {
        {"global_load", counters.global_load}, {"global_store", counters.global_store},
        {"shared_load", counters.shared_load}, {"shared_store", counters.shared_store},
        {"async_store", counters.async_store}, {"barriers", counters.barriers},
        {"collectives", counters.collectives}, {"mma", counters.mma},
        {"ldmatrix", counters.ldmatrix},       {"cp_async", counters.cp_async},
        {"atomics", counters.atomics}};
    const auto add = [&](const char* name, const EngineTraffic& traffic) {
        if (traffic.requests != 0) {
            all[name] = traffic;
        }
    };
    if (counters.global_atomic.requests != 0) {
        all["global_atomic"] = counters.global_atomic;
    }
    add("tma_load", counters.tma_load);
    add("tma_store", counters.tma_store);
    add("bulk_reduce", counters.bulk_reduce);
    for (size_t i = 0; i < counters.wgmma.size(); ++i) {
        if (counters.wgmma[i] != 0) {
            const std::string shape =
                "m64n" + std::to_string(i % 33 * 8) + (i < 33 ? "k16" : "k32");
            all["wgmma"][shape] = counters.wgmma[i];
        }
    }
    return all;
}

} // namespace

std::string to_json(const std::vector<KernelProfile>& kernels) {
    nlohmann::json document = {{"version", 1}, {"kernels", nlohmann::json::array()}};
    for (const KernelProfile& kernel : kernels) {
        nlohmann::json lines = nlohmann::json::array();
        for (const auto& [line, counters] : kernel.lines) {
            nlohmann::json own = {{"file", line.file}, {"line", line.line}};
            own.update(json_of(counters));
            own["uncoalesced"] = findings(counters).uncoalesced;
            own["conflicted"] = findings(counters).conflicted;
            if (line.file.empty()) {
                document["unknown_lines"] = why_unresolved;
            }
            lines.push_back(own);
        }
        document["kernels"].push_back({{"name", kernel.name},
                                       {"launches", kernel.launches},
                                       {"grid", {kernel.grid.x, kernel.grid.y, kernel.grid.z}},
                                       {"block", {kernel.block.x, kernel.block.y, kernel.block.z}},
                                       {"shared_bytes", kernel.shared_bytes},
                                       {"total", json_of(kernel.total)},
                                       {"buffers", kernel.buffers},
                                       {"lines", lines}});
    }
    return document.dump(2) + "\n";
}

} // namespace flash::simt
