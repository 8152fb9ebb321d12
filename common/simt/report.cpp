#include "common/simt/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/simt/fault.hpp"
#include "common/simt/listing.hpp"

namespace flash::simt {
namespace {

constexpr double conflict_threshold = 1.1;
constexpr double sector_threshold = 1.3;

std::string padded(const std::string& text, size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string kilobytes(uint64_t bytes) {
    return bytes < 10000 ? with_commas(bytes) + " B" : with_commas((bytes + 500) / 1000) + " kB";
}

std::string per_request(const GlobalTraffic& traffic) {
    return fixed(static_cast<double>(traffic.sectors) / static_cast<double>(traffic.requests), 2);
}

void write_global(std::ostream& out, const char* name, const GlobalTraffic& traffic) {
    if (traffic.requests > 0) {
        out << "  " << name << with_commas(traffic.requests) << " requests, " << with_commas(traffic.sectors)
            << " sectors (" << per_request(traffic) << " a request), " << kilobytes(traffic.bytes) << " asked for\n";
    }
}

void write_shared(std::ostream& out, const char* name, const SharedTraffic& traffic) {
    if (traffic.requests > 0) {
        out << "  " << name << with_commas(traffic.requests) << " requests, " << with_commas(traffic.wavefronts)
            << " wavefronts, " << with_commas(traffic.ideal) << " without conflicts (" << fixed(ways(traffic), 2)
            << "-way), " << kilobytes(traffic.bytes) << '\n';
    }
}

std::string marks(const Findings& found) {
    return std::string(found.uncoalesced ? "  <- uncoalesced" : "") + (found.conflicted ? "  <- bank conflicts" : "");
}

void write_lines(std::ostream& out, const KernelProfile& kernel) {
    bool first = true;
    for (const LineProfile& line : kernel.lines) {
        if (!matters(line.counters, kernel.total)) {
            continue;
        }
        const Share share = share_of(line.counters, kernel.total);
        out << (first ? "  lines that matter\n" : "");
        first = false;
        out << "    "
            << (line.line.file.empty() ? "unknown line" : line.line.file + ":" + std::to_string(line.line.line));
        if (share.sectors > 0) {
            out << "  " << fixed(100 * share.sectors, 0) << "% of sectors";
        }
        if (share.wavefronts > 0) {
            out << "  " << fixed(100 * share.wavefronts, 0) << "% of wavefronts, "
                << fixed(ways(all_shared(line.counters)), 2) << "-way";
        }
        out << marks(findings(line.counters)) << '\n';
    }
}

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

nlohmann::ordered_json json_of(const Counters& counters) {
    return {{"global_load", json_of(counters.global_load)},
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
}

} // namespace

Findings findings(const Counters& counters) {
    const auto uncoalesced = [](const GlobalTraffic& traffic) {
        return static_cast<double>(traffic.sectors) > sector_threshold * static_cast<double>(traffic.ideal);
    };
    const auto conflicted = [](const SharedTraffic& traffic) {
        return static_cast<double>(traffic.wavefronts) > conflict_threshold * static_cast<double>(traffic.ideal);
    };
    return {conflicted(counters.shared_load) || conflicted(counters.shared_store) || conflicted(counters.async_store),
            uncoalesced(counters.global_load) || uncoalesced(counters.global_store)};
}

double ways(const SharedTraffic& traffic) {
    return traffic.ideal == 0 ? 0 : static_cast<double>(traffic.wavefronts) / static_cast<double>(traffic.ideal);
}

std::string summary(const std::vector<KernelProfile>& kernels) {
    std::ostringstream out;
    bool lines_known = true;
    for (const KernelProfile& kernel : kernels) {
        const dim3 grid = kernel.grid;
        const dim3 block = kernel.block;
        out << kernel.name << ": " << plural(kernel.launches, "launch") + (kernel.launches == 1 ? "" : "es") << " of "
            << grid.x << " x " << grid.y << " x " << grid.z << " blocks, " << block.x << " x " << block.y << " x "
            << block.z << " threads, " << with_commas(kernel.shared_bytes) << " bytes of shared memory\n";
        write_global(out, "global loads   ", kernel.total.global_load);
        write_global(out, "global stores  ", kernel.total.global_store);
        write_shared(out, "shared loads   ", kernel.total.shared_load);
        write_shared(out, "shared stores  ", kernel.total.shared_store);
        write_shared(out, "cp.async into  ", kernel.total.async_store);
        if (const std::string text = events(kernel.total); !text.empty()) {
            out << "  events         " << text << '\n';
        }
        for (const BufferTraffic& buffer : kernel.buffers) {
            out << "  " << buffer.name << " (" << kilobytes(buffer.bytes) << "): " << kilobytes(buffer.load.bytes)
                << " read, " << kilobytes(buffer.store.bytes) << " written\n";
        }
        write_lines(out, kernel);
        for (const LineProfile& line : kernel.lines) {
            lines_known = lines_known && !line.line.file.empty();
        }
    }
    if (!lines_known) {
        out << "some lines are not known: " << why_unresolved() << '\n';
    }
    return out.str();
}

std::string to_json(const std::vector<KernelProfile>& kernels) {
    nlohmann::ordered_json document = {{"version", 1}, {"kernels", nlohmann::ordered_json::array()}};
    for (const KernelProfile& kernel : kernels) {
        nlohmann::ordered_json lines = nlohmann::ordered_json::array();
        for (const LineProfile& line : kernel.lines) {
            nlohmann::ordered_json own = {{"file", line.line.file}, {"line", line.line.line}};
            own.update(json_of(line.counters));
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

std::string annotated_text(const std::vector<KernelProfile>& kernels) {
    std::ostringstream out;
    for (const Listing& listing : listings(kernels)) {
        out << listing.file << (listing.readable ? "" : " (cannot be read here)") << "\n"
            << "      global    sectors      shared\n"
            << "    requests  a request  wavefronts   ways\n";
        for (const ListedLine& line : listing.lines) {
            const GlobalTraffic global = all_global(line.counters);
            const SharedTraffic shared = all_shared(line.counters);
            const Findings found = findings(line.counters);
            out << padded(global.requests > 0 ? with_commas(global.requests) : "", 12)
                << padded(global.requests > 0 ? per_request(global) : "", 10) << (found.uncoalesced ? '!' : ' ')
                << padded(shared.requests > 0 ? with_commas(shared.wavefronts) : "", 12)
                << padded(shared.requests > 0 ? fixed(ways(shared), 2) : "", 6) << (found.conflicted ? '!' : ' ')
                << padded(std::to_string(line.number), 5) << " | " << line.text;
            if (const std::string text = events(line.counters); !text.empty()) {
                out << "   << " << text;
            }
            out << '\n';
        }
        out << "! marks lines with uncoalesced global accesses or bank conflicts\n\n";
    }
    return out.str();
}

} // namespace flash::simt
