#include "common/simt/listing.hpp"

#include <cstdio>
#include <fstream>
#include <map>

#include "common/simt/fault.hpp"

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
