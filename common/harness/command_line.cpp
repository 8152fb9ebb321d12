#include "common/harness/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <numeric>
#include <system_error>
#include <vector>

#include "common/harness/text.hpp"

namespace flash {
namespace {

/// The whole of `text` as a number of type T.
template <class T> T parse_number(const char* option, const std::string& text, const char* kind) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, value);
    if (failure == std::errc::result_out_of_range) {
        throw Error(std::string(option) + " " + in_quotes(text) +
                    " is too large or too small a number");
    }
    if (failure != std::errc{} || rest != end) {
        throw Error(std::string(option) + " needs " + kind + ", got " + in_quotes(text));
    }
    return value;
}

DType parse_dtype(const std::string& text) {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        if (text == dtype_name(type)) {
            return type;
        }
    }
    throw Error("--dtype must be fp32, fp16 or bf16, got " + in_quotes(text));
}

/// How many characters must be inserted, removed or changed to turn one text into the other
/// (Levenshtein).
size_t edit_distance(const std::string& from, const std::string& to) {
    std::vector<size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= from.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= to.size(); ++j) {
            const size_t change = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

[[noreturn]] void refuse_unknown(const CLI::App& app, const std::string& argument) {
    if (!argument.starts_with('-')) {
        throw Error("unexpected argument " + in_quotes(argument) +
                    ": every option begins with --\n" + "see " + app.get_name() + " --help");
    }
    const std::string flag = argument.substr(0, argument.find('='));
    std::string nearest;
    size_t smallest = 4; // anything further away is no likely typing error
    for (const CLI::Option* option : app.get_options()) {
        const std::string known = "--" + option->get_lnames().front();
        if (const size_t distance = edit_distance(flag, known); distance < smallest) {
            smallest = distance;
            nearest = known;
        }
    }
    throw Error("unknown option " + in_quotes(flag) +
                (nearest.empty() ? "\nsee " + app.get_name() + " --help"
                                 : "; did you mean " + nearest + "?"));
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
           "      the median of many runs, as one JSON document\n"
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
    app.allow_extras(); // so that an unknown option can be answered with the nearest known one

    const auto add = [&](const char* name, const char* kind, const std::string& help, auto store) {
        app.add_option_function<std::string>(name, store, help)->type_name(kind);
    };
    const auto add_size = [&](const char* name, std::optional<int64_t>& value,
                              const std::string& help) {
        add(name, "N", help, [name, &value](const std::string& text) {
            value = parse_number<int64_t>(name, text, "a whole number");
        });
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
    add("--scale", "S", "Factor on Q K^T (1/sqrt(d))", [&](const std::string& text) {
        options.scale = parse_number<float>("--scale", text, "a number");
    });
    add("--dtype", "TYPE",
        "Type of Q, K, V and O: " + joined(types, dtype_name) + " (" + dtype_name(types.at(0)) +
            ")",
        [&](const std::string& text) { options.dtype = parse_dtype(text); });
    add("--seed", "N", "Seed of the random input, N(0, 1) (0)", [&](const std::string& text) {
        options.seed = parse_number<uint64_t>("--seed", text, "a whole number, 0 or more");
    });
    add("--input", "FILE",
        std::string("Read q, k, v from a safetensors file; the shape comes from it") +
            (rung.is_backward() ? ". It may hold do (else random), and o with lse (else computed)"
                                : ""),
        [&](const std::string& text) { options.input = text; });
    add("--output", "FILE",
        std::string("Write ") + (rung.is_backward() ? "dq, dk and dv" : "o and lse") +
            " to a safetensors file",
        [&](const std::string& text) { options.output = text; });
    bool no_check = false;
    app.add_flag("--no-check", no_check, "Do not compare with the reference");
    add("--check-rows", "N", "Compare about N rows of each head with the reference (all)",
        [&](const std::string& text) {
            options.check_rows = parse_number<int64_t>("--check-rows", text, "a whole number");
            if (options.check_rows < 1) {
                throw Error("--check-rows must be 1 or more, got " + text +
                            "; --no-check compares none");
            }
        });
    app.add_flag("--bench", options.bench, "Time many runs with cold caches, and measure memory");
    add("--repetitions", "N",
        "How many runs --bench times (20 or more, fewer when they take minutes)",
        [&](const std::string& text) {
            options.repetitions = parse_number<int>("--repetitions", text, "a whole number");
            if (*options.repetitions < 1) {
                throw Error("--repetitions must be 1 or more, got " + text);
            }
            options.bench = true;
        });
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
    } catch (const CLI::ArgumentMismatch& error) { // "--q-len: 1 required N missing"
        const std::string message = error.what();
        throw Error(message.substr(0, message.find(':')) + " needs a value after it\nsee " +
                    rung.name + " --help");
    } catch (const CLI::ParseError& error) {
        throw Error(std::string(error.what()) + "\nsee " + rung.name + " --help");
    }
    if (const std::vector<std::string> unknown = app.remaining(); !unknown.empty()) {
        refuse_unknown(app, unknown.front());
    }
    options.check = !no_check;
    return options;
}

} // namespace flash
