// The source files that a profile speaks of, line by line, with what was counted for each.
#pragma once

#include <string>
#include <vector>

#include "common/simt/profile.hpp"

namespace flash::simt {

struct ListedLine {
    int number;
    std::string text;
    Counters counters; // of all kernels
    bool counted = false;
};

struct Listing {
    std::string file;
    std::vector<ListedLine> lines; // all of the file; only those that were counted when it cannot be read
    bool readable = true;
};

std::vector<Listing> listings(const std::vector<KernelProfile>& kernels);

/// Loads and stores of a line together.
GlobalTraffic all_global(const Counters& counters);
SharedTraffic all_shared(const Counters& counters);

/// A line's part of its kernel's traffic, from 0 to 1.
struct Share {
    double sectors, wavefronts;
};
Share share_of(const Counters& line, const Counters& kernel);

/// A line with a twentieth of the kernel's traffic of either kind, or with a finding.
bool matters(const Counters& line, const Counters& kernel);

/// "64 barriers, 128 collectives": what is counted beside memory traffic.
std::string events(const Counters& counters);

/// "12,345"
std::string with_commas(uint64_t number);

/// "3.25"
std::string fixed(double value, int digits);

} // namespace flash::simt
