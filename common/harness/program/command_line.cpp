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

std::string examples(const Rung& rung) {
    const std::string& name = rung.name;
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
           name +
           (rung.is_backward() ? " --input qkv.safetensors --output gradients.safetensors\n"
                                 "      tensors q, k, v, do from a file, dq, dk, dv to another\n"
                               : " --input qkv.safetensors --output o.safetensors\n"
                                 "      tensors q, k, v from a file, o and lse to another\n") +
           "  " + name +
           " --heads 8 --q-len 4096 --bench --json\n"
           "      the median of many runs, as one JSON document\n" +
           (rung.is_ring() ? "  mpirun -np 2 " + name +
                                 " --causal --q-len 1000\n"
                                 "      the sequence spread over two processes\n"
                           : std::string()) +
           (rung.is_paged() ? "  " + name +
                                  " --batch 3 --kv-len 1000 --q-len 1 --lengths 1000,0,37\n"
                                  "      K and V in pages, and three sequences of other lengths\n"
                            : std::string()) +
           "Exit code: 0 passed, 1 wrong result, 2 bad input or no usable device.";
}

} // namespace

std::optional<Options> parse_options(const Rung& rung, int argc, const char* const* argv) {
    Options options;
    CLI::App app(rung.is_backward() ? "dQ, dK, dV from Q, K, V, O, LSE, dO"
                                    : "O, LSE = attention(Q, K, V)",
                 rung.name);
    app.set_help_flag("-h,--help", "Print this help and exit");
    // so that a script's can be overruled
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.allow_extras(); // CLI11 would print an unknown option as it is, whatever it holds

    const auto add = [&](const char* name, const char* kind, auto& value, const std::string& help) {
        return app.add_option(name, value, help)->type_name(kind);
    };
    const auto add_size = [&](const char* name, std::optional<int64_t>& value,
                              const std::string& help) {
        add(name, "N", value, help)->check(of_64_bits(number<int64_t>("a whole number")));
    };
    const std::vector<DType> types = rung.dtypes();
    const std::string head_dims =
        rung.head_dims.empty() ? "any"
                               : joined(rung.head_dims, [](int d) { return std::to_string(d); });

    add_size("--batch", options.batch, "B, sequences in the batch (1)");
    add_size("--heads", options.heads, "H, query heads (4)");
    add_size("--kv-heads", options.kv_heads, "H_kv, key/value heads; divides H (H)");
    add_size("--q-len", options.q_len, "N_q, queries in a sequence (256)");
    add_size("--kv-len", options.kv_len, "N_kv, keys in a sequence (N_q)");
    add_size("--head-dim", options.head_dim, "d, size of one head: " + head_dims + " (64)");
    app.add_flag("--causal", options.causal, "Query i sees key j only if j <= i + N_kv - N_q");
    add("--scale", "S", options.scale, "Factor on Q K^T (1/sqrt(d))")
        ->check(number<float>("a number"));
    std::string type;
    add("--dtype", "TYPE", type,
        "Type of Q, K, V and O: " + joined(types, dtype_name) + " (" + dtype_name(types.at(0)) +
            ")")
        ->check(CLI::IsMember({"fp32", "fp16", "bf16"}).description(""));
    add("--seed", "N", options.seed, "Seed of the random input, N(0, 1) (0)")
        ->check(of_64_bits(number<uint64_t>("a whole number, 0 or more")));
    add("--input", "FILE", options.input,
        std::string("Read q, k, v from a safetensors file; the shape comes from it") +
            (rung.is_backward() ? ". It may hold do (else random), and o with lse (else computed)"
                                : ""));
    add("--output", "FILE", options.output,
        std::string("Write ") + (rung.is_backward() ? "dq, dk and dv" : "o and lse") +
            " to a safetensors file");
    bool no_check = false;
    app.add_flag("--no-check", no_check, "Do not compare with the reference");
    add("--check-rows", "N", options.check_rows,
        "Compare about N rows of each head with the reference (all)")
        ->check(positive<int64_t>());
    app.add_flag("--bench", options.bench, "Time many runs with cold caches, and measure memory");
    add("--repetitions", "N", options.repetitions,
        "How many runs --bench times (20 or more, fewer when they take minutes)")
        ->check(positive<int>());
    if (rung.is_ring()) {
        add("--ranks", "P", options.ranks,
            "Compute all of P ranks in this process, one after the other, so that nothing travels")
            ->check(positive<int>());
        add("--portions", "N", options.portions,
            "Send the heads round in N portions, one after the other: the workspace is for one (1)")
            ->check(positive<int>());
    }
    if (rung.is_paged()) {
        add_size("--page", options.page,
                 "Lay K and V into pages of N keys, in random order; N is a multiple of 16 (64)");
        add("--lengths", "LIST", options.lengths,
            "Keys of each sequence in these pages, 0 to N_kv: 1000,0,37 or random (all N_kv)");
    }
    app.add_flag("--json", options.json, "Print one JSON document instead of text");
    const std::vector<BackendFlag> backend_flags = rung.backend().flags();
    for (const BackendFlag& flag : backend_flags) {
        app.add_flag_callback(flag.name, flag.use, flag.help);
    }
    app.footer(examples(rung));

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
