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

/// "64 barriers, 128 collectives": what is counted beside memory traffic.
std::string events(const Counters& counters);

/// "12,345"
std::string with_commas(uint64_t number);

/// "3.25"
std::string fixed(double value, int digits);

} // namespace flash::simt
