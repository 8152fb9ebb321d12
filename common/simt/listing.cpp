#include "common/simt/listing.hpp"

#include <cstdio>
#include <fstream>
#include <map>

#include "common/simt/fault.hpp"
#include "common/simt/report.hpp"

namespace flash::simt {

std::vector<Listing> listings(const std::vector<KernelProfile>& kernels) {
    std::map<std::string, std::map<int, Counters>> files;
    for (const KernelProfile& kernel : kernels) {
        for (const LineProfile& line : kernel.lines) {
            if (!line.line.file.empty()) {
                files[line.line.file][line.line.line] += line.counters;
            }
        }
    }
    std::vector<Listing> all;
    for (const auto& [file, counted] : files) {
        Listing& listing = all.emplace_back();
        listing.file = file;
        std::ifstream source(file);
        std::string text;
        for (int number = 1; std::getline(source, text); ++number) {
            const auto found = counted.find(number);
            listing.lines.push_back(
                {number, text, found != counted.end() ? found->second : Counters{}, found != counted.end()});
        }
        if (listing.lines.empty()) {
            listing.readable = false;
            for (const auto& [number, counters] : counted) {
                listing.lines.push_back({number, "", counters, true});
            }
        }
    }
    return all;
}

GlobalTraffic all_global(const Counters& counters) {
    GlobalTraffic sum = counters.global_load;
    return sum += counters.global_store;
}

SharedTraffic all_shared(const Counters& counters) {
    SharedTraffic sum = counters.shared_load;
    sum += counters.shared_store;
    return sum += counters.async_store;
}

Share share_of(const Counters& line, const Counters& kernel) {
    const auto part = [](uint64_t own, uint64_t all) {
        return all == 0 ? 0 : static_cast<double>(own) / static_cast<double>(all);
    };
    return {part(all_global(line).sectors, all_global(kernel).sectors),
            part(all_shared(line).wavefronts, all_shared(kernel).wavefronts)};
}

bool matters(const Counters& line, const Counters& kernel) {
    const Share share = share_of(line, kernel);
    const Findings found = findings(line);
    return share.sectors >= 0.05 || share.wavefronts >= 0.05 || found.conflicted || found.uncoalesced;
}

std::string events(const Counters& counters) {
    std::string text;
    const auto add = [&](uint64_t count, const char* noun) {
        if (count > 0) {
            text += (text.empty() ? "" : ", ") + with_commas(count) + " " + noun + (count == 1 ? "" : "s");
        }
    };
    add(counters.barriers, "barrier");
    add(counters.collectives, "collective");
    add(counters.atomics, "atomic");
    add(counters.mma, "mma");
    add(counters.ldmatrix, "ldmatrix");
    add(counters.cp_async, "cp.async");
    return text;
}

std::string with_commas(uint64_t number) {
    std::string text = std::to_string(number);
    for (size_t end = text.size(); end > 3; end -= 3) {
        text.insert(end - 3, ",");
    }
    return text;
}

std::string fixed(double value, int digits) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

} // namespace flash::simt
