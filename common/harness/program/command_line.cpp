#pragma GCC optimize("O1") // compiled in half the time, and nobody waits for a command line

#include "common/harness/program/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/harness/files/text.hpp"

namespace flash {
namespace {

/// CLI11 checks the type; the message says what would work.
template <class T> CLI::Validator number(const std::string& kind) {
    const auto check = [kind](std::string& text) {
        const bool negative = text.starts_with('-'); // CLI11 2.1 takes -1 for 2^64 - 1
        const bool valid = CLI::TypeValidator<T>("")(text).empty() && !text.empty() &&
                           !(negative && std::is_unsigned_v<T>);
        return valid ? std::string() : "needs " + kind + ", got " + in_quotes(text);
    };
    return CLI::Validator(check, "");
}

/// `check` of a whole number, and that it is not beyond 64 bits: there CLI11 2.1 takes the largest.
CLI::Validator of_64_bits(const CLI::Validator& check) {
    const auto both = [check](std::string& text) {
        errno = 0;
        const std::string said = check(text);
        return errno == ERANGE ? in_quotes(text) + " is beyond the numbers of 64 bits" : said;
    };
    return CLI::Validator(both, "");
}

/// At least one; without a word in the help.
template <class T> CLI::Validator positive() {
    return of_64_bits(CLI::Range(T{1}, std::numeric_limits<T>::max()));
}

template <class Items> std::string joined(const Items& items, auto to_text) {
    std::string text;
    for (const auto& item : items) {
        text += (text.empty() ? "" : ", ") + std::string(to_text(item));
    }
    return text;
}

CLI::Option* add(CLI::App& app, const char* name, const char* kind, auto& value,
                 const std::string& help) {
    return app.add_option(name, value, help)->type_name(kind);
}

std::string examples(const std::string& name, const Help& help) {
    return "Examples:\n"
           "  " +
           name +
           "\n"
           "      a small random problem, checked against the float64 reference\n"
           "  " +
           name +
           " --heads 8 --kv-heads 2 --q-len 1000 --causal\n"
           "      grouped heads and a causal mask, at a length that no tile size divides\n"
           "  " +
           name + help.file_example + "  " + name +
           " --heads 8 --q-len 4096 --bench --json\n"
           "      the median of many runs, as one JSON document\n" +
           help.examples + "Exit code: 0 passed, 1 wrong result, 2 bad input or no usable device.";
}

} // namespace

void CommandLine::add_size(const char* name, std::optional<int64_t>& value,
                           const std::string& help) {
    add(app_, name, "N", value, help)->check(of_64_bits(number<int64_t>("a whole number")));
}

void CommandLine::add_count(const char* name, const char* letter, std::optional<int>& value,
                            const std::string& help) {
    add(app_, name, letter, value, help)->check(positive<int>());
}

void CommandLine::add_text(const char* name, const char* what, std::optional<std::string>& value,
                           const std::string& help) {
    add(app_, name, what, value, help);
}

std::optional<Options> parse_options(Rung& rung, int argc, const char* const* argv) {
    Options options;
    const Help help = rung.help();
    CLI::App app(help.title, rung.name);
    CommandLine line(app);
    app.set_help_flag("-h,--help", "Print this help and exit");
    // so that a script's can be overruled
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.allow_extras(); // CLI11 would print an unknown option as it is, whatever it holds

    const std::vector<DType>& types = rung.dtypes;
    const auto any_or = [](std::span<const int> dims) {
        return dims.empty() ? "any" : joined(dims, [](int d) { return std::to_string(d); });
    };
    const int64_t d = rung.usual_head_dim();

    line.add_size("--batch", options.batch, "B, sequences in the batch (1)");
    line.add_size("--heads", options.heads, "H, query heads (4)");
    line.add_size("--kv-heads", options.kv_heads, "H_kv, key/value heads; divides H (H)");
    line.add_size("--q-len", options.q_len, "N_q, queries in a sequence (256)");
    line.add_size("--kv-len", options.kv_len, "N_kv, keys in a sequence (N_q)");
    line.add_size("--head-dim", options.head_dim,
                  "d, size of one head: " + any_or(rung.head_dims) + " (" + std::to_string(d) +
                      ")");
    line.add_size("--head-dim-v", options.head_dim_v,
                  "d_v, of V and O: " + any_or(rung.head_dims_v) + " (" +
                      std::to_string(rung.head_dim_v_of(d)) + ")");
    if (rung.head_dims_v.empty()) { // V is as wide as Q and K
        app.get_option("--head-dim-v")->group("");
    }
    app.add_flag("--causal", options.causal, "Query i sees key j only if j <= i + N_kv - N_q");
    line.add_size("--window", options.window,
                  "Query i sees the last N keys up to its own; implies --causal");
    app.add_flag(
        "--sink", options.sink,
        "A logit for each head joins the sum and owns no key: `sink`, (H), of the file, or "
        "N(0, 1)");
    if (!rung.window_and_sink) { // it says that it knows neither, and --help need not
        app.get_option("--window")->group("");
        app.get_option("--sink")->group("");
    }
    add(app, "--scale", "S", options.scale, "Factor on Q K^T (1/sqrt(d))")
        ->check(number<float>("a number"));
    std::string type;
    add(app, "--dtype", "TYPE", type,
        "Type of Q, K, V and O: " + joined(types, dtype_name) + " (" + dtype_name(types.at(0)) +
            ")")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16"}).description(""));
    add(app, "--seed", "N", options.seed, "Seed of the random input, N(0, 1) (0)")
        ->check(of_64_bits(number<uint64_t>("a whole number, 0 or more")));
    line.add_text("--input", "FILE", options.input,
                  "Read q, k, v from a safetensors file; the shape comes from it" +
                      std::string(help.input));
    line.add_text("--output", "FILE", options.output,
                  std::string("Write ") + help.output + " to a safetensors file");
    bool no_check = false;
    app.add_flag("--no-check", no_check, "Do not compare with the reference");
    add(app, "--check-rows", "N", options.check_rows,
        "Compare about N rows of each head with the reference (all)")
        ->check(positive<int64_t>());
    app.add_flag("--bench", options.bench, "Time many runs with cold caches, and measure memory");
    line.add_count("--repetitions", "N", options.repetitions,
                   "How many runs --bench times (20 or more, fewer when they take minutes)");
    rung.add_options(line);
    app.add_flag("--json", options.json, "Print one JSON document instead of text");
    const std::vector<BackendFlag> backend_flags = rung.backend().flags();
    for (const BackendFlag& flag : backend_flags) {
        app.add_flag_callback(flag.name, flag.use, flag.help);
    }
    app.footer(examples(rung.name, help));

    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        std::fputs(app.help().c_str(), stdout);
        return std::nullopt;
    } catch (const CLI::ParseError& error) {
        std::string message = error.what(); // "--q-len: needs a whole number, got 'abc'"
        std::ranges::replace_if(
            message, [](char c) { return c < ' ' || c > '~'; }, '?');
        throw Error(message + "\nsee " + rung.name + " --help");
    }
    if (const std::vector<std::string> unknown = app.remaining(); !unknown.empty()) {
        for (const char* const option : {"--lengths", "--kv-lengths"}) {
            if (unknown.front().starts_with(option)) {
                throw Error(rung.name + " knows no " + option + "; the rung packed_sequences does");
            }
        }
        throw Error("unknown option " + in_quotes(unknown.front()) + "\nsee " + rung.name +
                    " --help");
    }
    for (const DType one : {DType::fp32, DType::fp16, DType::bf16}) {
        if (type == dtype_name(one)) {
            options.dtype = one;
        }
    }
    options.bench |= options.repetitions.has_value();
    options.check = !no_check;
    return options;
}

} // namespace flash
