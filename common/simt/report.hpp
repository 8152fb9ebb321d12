// A profile for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "common/simt/profile.hpp"

namespace flash::simt {

/// What is wrong with the memory traffic of a line, if anything.
struct Findings {
    bool conflicted = false;  // shared memory: more than 1.1 times the wavefronts that it could do with
    bool uncoalesced = false; // global memory: more than 1.3 times the sectors that each request's bytes would fill
};
Findings findings(const Counters& counters);

/// Wavefronts over the ideal: 1 is without conflict. 0 when there was no access.
double ways(const SharedTraffic& traffic);

/// Totals of each kernel, and the lines that make up most of its traffic.
std::string summary(const std::vector<KernelProfile>& kernels);

/// One JSON document with all that was counted.
std::string to_json(const std::vector<KernelProfile>& kernels);

/// The source files of the kernels, each line with its counts beside it. As text, and as a self-contained HTML page.
std::string annotated_text(const std::vector<KernelProfile>& kernels);
std::string annotated_html(const std::string& title, const std::vector<KernelProfile>& kernels);

} // namespace flash::simt
