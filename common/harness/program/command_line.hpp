// The command line of a rung.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/harness/program/rung.hpp"

namespace CLI {
class App;
}

namespace flash {

/// What the user asked for; what was left open is empty.
struct Options {
    std::optional<int64_t> batch, heads, kv_heads, q_len, kv_len, head_dim, head_dim_v;
    bool causal = false;
    std::optional<int64_t> window;
    bool sink = false;
    std::optional<float> scale;
    std::optional<DType> dtype;
    std::optional<uint64_t> seed;
    std::optional<std::string> input, output;
    bool check = true;
    int64_t check_rows = 0; // of each head; 0: all
    bool bench = false;
    std::optional<int> repetitions; // of --bench
    bool json = false;
};

/// Where a kind of rungs adds its options.
class CommandLine {
  public:
    explicit CommandLine(CLI::App& app) : app_(app) {}

    /// A whole number of 64 bits; whether it makes sense is for make_problem to say, or the kind.
    void add_size(const char* name, std::optional<int64_t>& value, const std::string& help);

    /// A whole number from 1 on.
    void add_count(const char* name, const char* letter, std::optional<int>& value,
                   const std::string& help);

    /// Any text; `what` stands for it in the help.
    void add_text(const char* name, const char* what, std::optional<std::string>& value,
                  const std::string& help);

  private:
    CLI::App& app_;
};

/// Nothing when --help was asked for and has been printed. Throws Error for an unknown option or a
/// value that is not of the option's kind.
std::optional<Options> parse_options(Rung& rung, int argc, const char* const* argv);

} // namespace flash
