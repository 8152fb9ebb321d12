#include <nlohmann/json.hpp>

#include "common/simt/report/profile.hpp"

namespace flash::simt {
namespace {

nlohmann::ordered_json json_of(const GlobalTraffic& traffic) {
    return {{"requests", traffic.requests},
            {"bytes", traffic.bytes},
            {"sectors", traffic.sectors},
            {"ideal", traffic.ideal}};
}

nlohmann::ordered_json json_of(const SharedTraffic& traffic) {
    return {{"requests", traffic.requests},
            {"bytes", traffic.bytes},
            {"wavefronts", traffic.wavefronts},
            {"ideal", traffic.ideal}};
}

/// Counts of Hopper's own, and of atomics in global memory, are there only if they are not zero.
nlohmann::ordered_json json_of(const Counters& counters) {
    nlohmann::ordered_json all = {{"global_load", json_of(counters.global_load)},
                                  {"global_store", json_of(counters.global_store)},
                                  {"shared_load", json_of(counters.shared_load)},
                                  {"shared_store", json_of(counters.shared_store)},
                                  {"async_store", json_of(counters.async_store)},
                                  {"barriers", counters.barriers},
                                  {"collectives", counters.collectives},
                                  {"mma", counters.mma},
                                  {"ldmatrix", counters.ldmatrix},
                                  {"cp_async", counters.cp_async},
                                  {"atomics", counters.atomics}};
    const auto add = [&](const char* name, const EngineTraffic& traffic) {
        if (traffic.requests != 0) {
            all[name] = {{"requests", traffic.requests}, {"bytes", traffic.bytes}};
        }
    };
    if (counters.global_atomic.requests != 0) {
        all["global_atomic"] = json_of(counters.global_atomic);
    }
    add("tma_load", counters.tma_load);
    add("tma_store", counters.tma_store);
    add("bulk_reduce", counters.bulk_reduce);
    for (size_t i = 0; i < counters.wgmma.size(); ++i) {
        if (counters.wgmma[i] != 0) {
            all["wgmma"]["m64n" + std::to_string(8 * i) + "k16"] = counters.wgmma[i];
        }
    }
    return all;
}

} // namespace

std::string to_json(const std::vector<KernelProfile>& kernels) {
    nlohmann::ordered_json document = {{"version", 1}, {"kernels", nlohmann::ordered_json::array()}};
    for (const KernelProfile& kernel : kernels) {
        nlohmann::ordered_json lines = nlohmann::ordered_json::array();
        for (const auto& [line, counters] : kernel.lines) {
            nlohmann::ordered_json own = {{"file", line.file}, {"line", line.line}};
            own.update(json_of(counters));
            own["uncoalesced"] = findings(counters).uncoalesced;
            own["conflicted"] = findings(counters).conflicted;
            if (line.file.empty()) {
                document["unknown_lines"] = why_unresolved();
            }
            lines.push_back(own);
        }
        nlohmann::ordered_json buffers = nlohmann::ordered_json::array();
        for (const BufferTraffic& buffer : kernel.buffers) {
            buffers.push_back({{"name", buffer.name},
                               {"bytes", buffer.bytes},
                               {"load", json_of(buffer.load)},
                               {"store", json_of(buffer.store)}});
        }
        document["kernels"].push_back({{"name", kernel.name},
                                       {"launches", kernel.launches},
                                       {"grid", {kernel.grid.x, kernel.grid.y, kernel.grid.z}},
                                       {"block", {kernel.block.x, kernel.block.y, kernel.block.z}},
                                       {"shared_bytes", kernel.shared_bytes},
                                       {"total", json_of(kernel.total)},
                                       {"buffers", buffers},
                                       {"lines", lines}});
    }
    return document.dump(2) + "\n";
}

} // namespace flash::simt
