// The command line of a rung.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/harness/program/rung.hpp"

namespace flash {

/// What the user asked for; what was left open is empty.
struct Options {
    std::optional<int64_t> batch, heads, kv_heads, q_len, kv_len, head_dim;
    bool causal = false;
    std::optional<float> scale;
    std::optional<DType> dtype;
    std::optional<uint64_t> seed;
    std::optional<std::string> input, output;
    bool check = true;
    int64_t check_rows = 0; // of each head; 0: all
    bool bench = false;
    std::optional<int> repetitions; // of --bench
    bool json = false;
    std::optional<int> ranks;           // of a ring, all in this process
    std::optional<int> portions;        // of a ring's heads
    std::optional<int64_t> page;        // of a paged rung: keys in a page
    std::optional<std::string> lengths; // "1000,0,37", or "random"

    bool paged() const { return page || lengths; }
};

/// Nothing when --help was asked for and has been printed. Throws Error for an unknown option or a
/// value that is not of the option's kind; whether the values make sense together is for
/// `make_inputs` to say.
std::optional<Options> parse_options(const Rung& rung, int argc, const char* const* argv);

} // namespace flash
