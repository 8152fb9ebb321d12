#include "common/harness/program/input_tensors.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/text.hpp"
#include "common/harness/program/random.hpp"

namespace flash {
namespace {

/// Sizes from the file; a size that was also given as an option must agree.
void take_shape(Problem& problem, const Options& options) {
    const std::string& path = *options.input;
    const SafetensorsReader file(path);
    const auto shape = [&](const char* name) -> const std::vector<int64_t>& {
        const TensorInfo& info = file.info(name);
        if (info.shape.size() != 4) {
            throw Error(path + ": " + name + " has the shape " + format_shape(info.shape) +
                        ", but 4 dimensions are needed: (batch, heads, length, head dim)");
        }
        return info.shape;
    };
    const auto &q = shape("q"), &k = shape("k"), &v = shape("v");
    const std::string shapes =
        "q " + format_shape(q) + ", k " + format_shape(k) + ", v " + format_shape(v);
    const auto agree = [&](bool equal, const char* rule) {
        if (!equal) {
            throw Error(path + ": the shapes disagree: " + shapes + "\n" + rule);
        }
    };
    agree(std::ranges::equal(std::span(k).first(3), std::span(v).first(3)),
          "k and v must have the same shape, (B, H_kv, N_kv, d), up to v's own head dim");
    agree(q[0] == k[0], "q and k must have the same batch, their first dimension");
    agree(q[3] == k[3], "q and k must have the same head dim, their last dimension");
    if (options.sink && file.info("sink").shape != std::vector{q[1]}) {
        throw Error(path + ": sink has the shape " + format_shape(file.info("sink").shape) +
                    ", but one logit for each of the " + std::to_string(q[1]) +
                    " query heads is needed");
    }
    problem.batch = q[0];
    problem.heads = q[1];
    problem.q_len = q[2];
    problem.head_dim = q[3];
    problem.head_dim_v = v[3] == q[3] ? 0 : v[3];
    problem.kv_heads = k[1];
    problem.kv_len = k[2];

    const auto same = [&](const char* option, const std::optional<int64_t>& wanted, int64_t size) {
        if (wanted && *wanted != size) {
            throw Error(std::string(option) + " " + std::to_string(*wanted) + " disagrees with " +
                        path + ": " + shapes + "\nleave " + option +
                        " out: with --input the shape comes from the file");
        }
    };
    same("--batch", options.batch, problem.batch);
    same("--heads", options.heads, problem.heads);
    same("--kv-heads", options.kv_heads, problem.kv_heads);
    same("--q-len", options.q_len, problem.q_len);
    same("--kv-len", options.kv_len, problem.kv_len);
    same("--head-dim", options.head_dim, problem.head_dim);
    same("--head-dim-v", options.head_dim_v, problem.v_dim());
}

/// Some numbers of a sequence, from `first` on.
struct Piece {
    int64_t first;
    std::span<float> values;
    int64_t end() const { return first + static_cast<int64_t>(values.size()); }
};

/// All tensors, one after the other, are one sequence of numbers. These are pieces of it, in its
/// order. The sequence has independent parts, which can be made side by side: a value depends on
/// the seed and its place alone, not on pieces or the number of threads.
void fill_pieces(const std::vector<Piece>& pieces, DType dtype, uint64_t seed,
                 const Progress& progress) {
    constexpr int64_t part_size = 1 << 20;
    struct Part {
        int64_t number;
        size_t first_piece; // that has numbers of it
    };
    std::vector<Part> parts;
    for (size_t i = 0; i < pieces.size(); ++i) {
        for (int64_t n = pieces[i].first / part_size; n * part_size < pieces[i].end(); ++n) {
            if (parts.empty() || n > parts.back().number) {
                parts.push_back({n, i});
            }
        }
    }
    std::atomic<int64_t> done = 0;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic)
#endif
    for (size_t p = 0; p < parts.size(); ++p) {
        NormalGenerator normal(seed, static_cast<uint32_t>(parts[p].number));
        int64_t at = parts[p].number * part_size;
        const int64_t end = at + part_size;
        for (size_t i = parts[p].first_piece; i < pieces.size() && pieces[i].first < end; ++i) {
            for (; at < pieces[i].first; ++at) { // between the pieces
                normal();
            }
            for (; at < std::min(pieces[i].end(), end); ++at) {
                pieces[i].values[static_cast<size_t>(at - pieces[i].first)] =
                    round_to(dtype, normal());
            }
        }
        progress(static_cast<double>(++done) / static_cast<double>(parts.size()));
    }
}

/// In a file, and in the order of a rung's parameters.
constexpr const char* tensor_names[] = {"q", "k", "v"};

} // namespace

Problem make_problem(const Rung& rung, const Options& options) {
    Problem problem;
    if (options.input) {
        if (options.seed) {
            throw Error(
                "--seed makes random input, --input reads it from a file: give one of them");
        }
        take_shape(problem, options);
    } else {
        problem.batch = options.batch.value_or(1);
        problem.heads = options.heads.value_or(4);
        problem.kv_heads = options.kv_heads.value_or(problem.heads);
        problem.q_len = options.q_len.value_or(256);
        problem.kv_len = options.kv_len.value_or(problem.q_len);
        problem.head_dim = options.head_dim.value_or(rung.usual_head_dim());
        const int64_t d_v = options.head_dim_v.value_or(rung.head_dim_v_of(problem.head_dim));
        if (options.head_dim_v && d_v < 1) {
            throw Error("head-dim-v must be at least 1, got " + std::to_string(d_v));
        }
        problem.head_dim_v = d_v == problem.head_dim ? 0 : d_v;
    }
    if (options.window && *options.window < 1) {
        throw Error("window must be at least 1, the query's own key, got " +
                    std::to_string(*options.window));
    }
    problem.window = options.window.value_or(0);
    problem.causal = options.causal || options.window; // its upper edge
    problem.sink = options.sink;
    problem.scale = options.scale.value_or(default_scale(std::max<int64_t>(problem.head_dim, 1)));
    validate(problem);
    return problem;
}

void convert(std::vector<float>& values, DType type, const std::string& tensor) {
    for (size_t i = 0; i < values.size(); ++i) {
        const float rounded = round_to(type, values[i]);
        if (std::isinf(rounded) && std::isfinite(values[i])) {
            throw Error(tensor + " holds " + std::to_string(values[i]) + " (element " +
                        std::to_string(i) + "), too large for " + dtype_name(type) +
                        (type == DType::fp16
                             ? ", whose largest value is 65504; try --dtype bf16 or fp32"
                             : "; try --dtype fp32"));
        }
        values[i] = rounded;
    }
}

void fill_with_normal_numbers(std::vector<float>& values, int64_t first, DType dtype, uint64_t seed,
                              const Progress& progress) {
    fill_pieces({{first, values}}, dtype, seed, progress);
}

std::vector<float> make_ranges(const Problem& problem, DType dtype, const Options& options,
                               size_t i, const std::vector<Range>& ranges,
                               const Progress& progress) {
    int64_t size = 0;
    for (const Range& range : ranges) {
        size += range.count;
    }
    std::vector<float> values(static_cast<size_t>(size));
    std::optional<SafetensorsReader> file;
    if (options.input) {
        file.emplace(*options.input);
    }
    // in the sequence of random numbers
    const int64_t start = i == 0 ? 0 : problem.q_size() + (i == 1 ? 0 : problem.kv_size());
    std::vector<Piece> pieces;
    auto to = values.begin();
    for (const Range& range : ranges) {
        if (file) {
            std::ranges::copy(file->read(tensor_names[i], range.first, range.count), to);
        } else {
            pieces.push_back({start + range.first, {to, static_cast<size_t>(range.count)}});
        }
        to += range.count;
    }
    if (file) {
        convert(values, dtype, *options.input + ": " + tensor_names[i]);
        progress(1);
    } else {
        fill_pieces(pieces, dtype, options.seed.value_or(0), progress);
    }
    return values;
}

HostTensors make_heads(const Problem& problem, DType dtype, const Options& options, int64_t first,
                       int64_t count, const Progress& progress) {
    HostTensors tensors;
    tensors.dtype = dtype;
    std::vector<float>* const values[] = {&tensors.q, &tensors.k, &tensors.v};
    const int64_t sizes[] = {problem.q_size(), problem.kv_size(), problem.v_size()};
    for (size_t i = 0; i < std::size(values); ++i) {
        const int64_t head = sizes[i] / (problem.batch * problem.kv_heads); // for each K/V head
        *values[i] =
            make_ranges(problem, dtype, options, i, {{first * head, count * head}},
                        [&](double done) { progress((static_cast<double>(i) + done) / 3); });
    }
    return tensors;
}

HostTensors make_tensors(const Problem& problem, DType dtype, const Options& options,
                         const Progress& progress) {
    HostTensors tensors =
        make_heads(problem, dtype, options, 0, problem.batch * problem.kv_heads, progress);
    if (problem.sink && options.input) {
        tensors.sink = SafetensorsReader(*options.input).read("sink");
        for (const float logit : tensors.sink) {
            if (!(logit <= std::numeric_limits<float>::max())) {
                throw Error(*options.input + ": sink has a logit of " +
                            (std::isnan(logit) ? "NaN" : "infinity") +
                            "; every one must be finite, or -infinity for none");
            }
        }
    } else if (problem.sink) { // behind Q, K and V
        tensors.sink.resize(static_cast<size_t>(problem.heads));
        fill_with_normal_numbers(tensors.sink,
                                 problem.q_size() + problem.kv_size() + problem.v_size(),
                                 DType::fp32, options.seed.value_or(0), progress);
    }
    return tensors;
}

} // namespace flash
