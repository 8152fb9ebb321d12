#include "common/harness/packed/line_options.hpp"

#include <algorithm>
#include <utility>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/text.hpp"
#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {
namespace {

std::vector<int64_t> lengths_in(const std::string& text, const char* option) {
    const std::optional<std::vector<int64_t>> lengths = whole_numbers(text);
    if (!lengths) {
        throw Error(std::string(option) + " needs whole numbers with commas between them, got " +
                    in_quotes(text));
    }
    return *lengths;
}

/// Rows, heads and d of a line in a file.
std::vector<int64_t> line_in(const SafetensorsReader& file, const std::string& path,
                             const char* tensor) {
    const std::vector<int64_t>& shape = file.info(tensor).shape;
    if (shape.size() != 3) {
        throw Error(path + ": " + tensor + " has the shape " + format_shape(shape) +
                    ", but 3 dimensions are needed: (tokens, heads, head dim)");
    }
    return shape;
}

/// The sizes of a file's tensors as options, one sequence of all tokens; without the file.
Options sizes_of_file(Options options) {
    const std::string path = *std::exchange(options.input, std::nullopt);
    if (options.seed || options.batch || options.heads || options.kv_heads || options.q_len ||
        options.kv_len || options.head_dim) {
        throw Error("with --input shapes come from the file, and lengths from --lengths and "
                    "--kv-lengths: leave out --seed and sizes");
    }
    const SafetensorsReader file(path);
    const std::vector<int64_t> q = line_in(file, path, "q"), k = line_in(file, path, "k"),
                               v = line_in(file, path, "v");
    if (k != v || q[2] != k[2]) {
        throw Error(path + ": the shapes disagree: q " + format_shape(q) + ", k " +
                    format_shape(k) + ", v " + format_shape(v) +
                    "\nk and v must have the same shape, and q the same head dim");
    }
    options.q_len = q[0];
    options.heads = q[1];
    options.head_dim = q[2];
    options.kv_len = k[0];
    options.kv_heads = k[1];
    return options;
}

/// Throws Error unless the lengths cover a file's line.
void require_all_tokens(const Options& of_file, const PackedShape& shape, const std::string& path) {
    const auto agree = [&](int64_t tokens, int64_t total, const char* tensor) {
        if (tokens != total) {
            throw Error(path + ": " + tensor + " has " + std::to_string(tokens) +
                        " tokens, but the lengths add up to " + std::to_string(total));
        }
    };
    agree(*of_file.q_len, shape.total_q(), "q");
    agree(*of_file.kv_len, shape.total_kv(), "k");
}

std::string in_brackets(const std::vector<int64_t>& lengths) {
    std::string list;
    for (const int64_t length : lengths) {
        list += (list.empty() ? "" : ",") + std::to_string(length);
    }
    return "[" + list + "]";
}

} // namespace

void LineOptions::add(CommandLine& line) {
    line.add_text("--lengths", "LIST", lengths_given_,
                  "Queries of each sequence, 0 or more: 1000,0,37 (B times N_q)");
    line.add_text("--kv-lengths", "LIST", kv_lengths_given_,
                  "Keys of each sequence (as many as queries, or B times N_kv)");
}

PackedShape LineOptions::shape(const Rung& rung, const Options& options) const {
    if ((lengths_given_ && options.q_len) || (kv_lengths_given_ && options.kv_len)) {
        throw Error("--lengths and --kv-lengths say the length of each sequence: leave out --q-len "
                    "or --kv-len");
    }
    const Options of_file = options.input ? sizes_of_file(options) : Options{};
    Options sized = options.input ? of_file : options;
    PackedShape shape;
    const auto longest = [](const std::vector<int64_t>& lengths) { // as a bound
        return std::max<int64_t>(std::ranges::max(lengths), 1);
    };
    if (lengths_given_) {
        shape.q_lengths = lengths_in(*lengths_given_, "--lengths");
        sized.q_len = longest(shape.q_lengths);
        sized.batch = options.batch.value_or(std::ssize(shape.q_lengths));
    }
    const bool as_many_keys = !options.kv_len && of_file.q_len == of_file.kv_len;
    if (kv_lengths_given_) {
        shape.kv_lengths = lengths_in(*kv_lengths_given_, "--kv-lengths");
    } else if (as_many_keys) {
        shape.kv_lengths = shape.q_lengths;
    }
    if (!shape.kv_lengths.empty()) {
        sized.kv_len = longest(shape.kv_lengths);
        sized.batch = sized.batch.value_or(std::ssize(shape.kv_lengths));
    }
    shape.problem = make_problem(rung, sized);
    const auto fill = [&](std::vector<int64_t>& lengths, int64_t length) {
        if (lengths.empty()) {
            lengths.assign(static_cast<size_t>(shape.problem.batch), length);
        }
    };
    fill(shape.q_lengths, shape.problem.q_len);
    fill(shape.kv_lengths, shape.problem.kv_len);
    require_lengths(shape);
    if (options.input) {
        require_all_tokens(of_file, shape, *options.input);
    }
    return shape;
}

void plan_line(Report& report, const PackedShape& shape) {
    report.rows = shape.problem.heads * shape.total_q();
    report.kind_fields = {{"lengths", in_brackets(shape.q_lengths)},
                          {"kv_lengths", in_brackets(shape.kv_lengths)}};
    const auto range = [](const std::vector<int64_t>& lengths, int64_t total, const char* what) {
        const auto [least, most] = std::ranges::minmax(lengths);
        return std::to_string(least) + " to " + std::to_string(most) + " " + what + ", " +
               std::to_string(total) + " in all";
    };
    report.kind_lines = "line      sequences of " +
                        range(shape.q_lengths, shape.total_q(), "queries") + "; " +
                        range(shape.kv_lengths, shape.total_kv(), "keys") + "\n";
}

} // namespace flash
