#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/text.hpp"
#include "common/harness/packed/packed_kind.hpp"
#include "common/harness/program/command_line.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

template <class T>
std::function<void(const Call::Pointers&)> bound(const PackedShape& shape,
                                                 const ForwardPacked<T>& function) {
    const PackedSequences totals{.total_q = shape.total_q(),
                                 .total_kv = shape.total_kv(),
                                 .cu_seqlens_q = nullptr,
                                 .cu_seqlens_kv = nullptr};
    return [p = shape.problem, totals, function](const Call::Pointers& at) {
        PackedSequences line = totals;
        line.cu_seqlens_q = at.in<int>(3);
        line.cu_seqlens_kv = at.in<int>(4);
        function(p, line, at.in<T>(0), at.in<T>(1), at.in<T>(2), at.out<T>(0), at.out<float>(1),
                 at.workspace);
    };
}

/// B sequences of a line as the tensors (B, H, N, d) that the suite judges.
class SequencesOfLine final : public AnyRun {
  public:
    /// `offsets`: the first row of each.
    SequencesOfLine(std::unique_ptr<AnyRun> line, const Problem& problem,
                    std::vector<int64_t> offsets)
        : line_(std::move(line)), problem_(problem), offsets_(std::move(offsets)) {}

    void poison() override { line_->poison(); }
    void run() override { line_->run(); }
    double time() override { return line_->time(); }
    size_t workspace_bytes() const override { return line_->workspace_bytes(); }
    std::string damage() const override { return line_->damage(); }

    std::vector<float> output(size_t i) const override {
        const std::vector<float> line = line_->output(i);
        std::vector<float> all;
        for (const int64_t offset : offsets_) {
            const Problem& p = problem_;
            const std::vector<float> one =
                i == 0 ? from_line(line, p.heads, p.head_dim, offset, p.q_len)
                       : lse_from_line(line, p.heads, offset, p.q_len);
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }

  private:
    const std::unique_ptr<AnyRun> line_;
    const Problem problem_;
    const std::vector<int64_t> offsets_;
};

/// The strangers among the suite's sequences: queries without keys, keys without queries, nothing
/// at all, one row, and more than a tile has. Before the first of its own there are all of them,
/// and more empty ones than a warp has lanes.
struct Stranger {
    int64_t queries, keys;
};
constexpr Stranger strangers[] = {{3, 0}, {0, 0}, {1, 1}, {0, 70}, {70, 20}};
constexpr int empty_ones = 33;

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

Rung& rung_of(const PackedRung& rung) { return kept(std::make_unique<PackedKind>(rung)); }

PackedKind::PackedKind(const PackedRung& rung, bool among_strangers)
    : ForwardKind(rung, {.name = rung.name, .check = rung.check}), packed_(rung),
      among_strangers_(among_strangers) {}

Help PackedKind::help() const {
    return {.input = ", as lines of tokens: (tokens, heads, d)",
            .output = "o and lse, of the line,",
            .file_example = " --input line.safetensors --lengths 100,37,0 --output o.safetensors\n"
                            "      lines q, k, v of 137 tokens from a file, o and lse to another\n",
            .examples = "  " + name +
                        " --lengths 1000,0,37 --kv-lengths 1000,5,500 --causal\n"
                        "      three sequences one after the other, of these queries and keys\n"};
}

void PackedKind::add_options(CommandLine& line) {
    line.add_text("--lengths", "LIST", lengths_given_,
                  "Queries of each sequence, 0 or more: 1000,0,37 (B times N_q)");
    line.add_text("--kv-lengths", "LIST", kv_lengths_given_,
                  "Keys of each sequence (as many as queries, or B times N_kv)");
}

Problem PackedKind::problem(const Options& options) {
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
    shape.problem = make_problem(*this, sized);
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
    shape_ = shape;
    return shape.problem;
}

void PackedKind::plan(Report& report, const Options&) {
    const PackedShape& shape = *shape_;
    report.flops = shape.flops();
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

Task PackedKind::task(const Report& report, const Options& options) {
    const PackedShape shape = *shape_;
    const auto tensors = std::make_shared<HostTensors>([&] {
        Report one = report; // one sequence has tensors of the same size
        one.problem = shape.as_one();
        return input_of(one, options);
    }());
    const std::shared_ptr<AnyRun> run = on_line(shape, tensors->view());
    return {run, [=, this](const Progress& progress, int64_t rows) {
                return judge_line(shape, tensors->view(), run->o(), run->lse(), progress, rows);
            }};
}

PackedShape PackedKind::shape_of(const Problem& p) const {
    if (shape_) {
        return *shape_;
    }
    const auto sequences = static_cast<size_t>(p.batch);
    return {p, std::vector<int64_t>(sequences, p.q_len), std::vector<int64_t>(sequences, p.kv_len)};
}

std::vector<TensorSpec> PackedKind::outputs(const Problem& p, DType dtype) const {
    const int64_t total = shape_of(p).total_q();
    return {{"O", dtype, {total, p.heads, p.head_dim}}, {"LSE", DType::fp32, {p.heads, total}}};
}

Call PackedKind::call(const Problem& p, DType dtype) const { return call_of(shape_of(p), dtype); }

Call PackedKind::call_of(const PackedShape& shape, DType dtype) const {
    const Problem& p = shape.problem;
    const int64_t total_q = shape.total_q();
    const std::vector<int64_t> q = {total_q, p.heads, p.head_dim},
                               kv = {shape.total_kv(), p.kv_heads, p.head_dim};
    Call call = call_with(p,
                          {{"Q", dtype, q},
                           {"K", dtype, kv},
                           {"V", dtype, kv},
                           {"cu_seqlens_q", DType::fp32, {p.batch + 1}},
                           {"cu_seqlens_kv", DType::fp32, {p.batch + 1}}},
                          {{"O", dtype, q}, {"LSE", DType::fp32, {p.heads, total_q}}});
    call.function = dtype == DType::fp32   ? bound(shape, packed_.fp32)
                    : dtype == DType::fp16 ? bound(shape, packed_.fp16)
                                           : bound(shape, packed_.bf16);
    return call;
}

double PackedKind::host_bytes(const Problem& p, DType dtype, bool check) const {
    return ForwardKind::host_bytes(shape_of(p).as_one(), dtype, check);
}

Rung::Way PackedKind::other_way(const Problem&) const {
    if (among_strangers_) {
        return {};
    }
    return {std::make_unique<PackedKind>(packed_, true),
            "among sequences of other lengths that hold NaN"};
}

std::unique_ptr<AnyRun> PackedKind::make_run(const Problem& p, const Inputs& inputs,
                                             size_t margin) const {
    PackedShape shape{p, {}, {}};
    std::vector<int64_t> q_offsets, kv_offsets;
    int64_t total_q = 0, total_kv = 0;
    const auto append = [&](int64_t queries, int64_t keys) {
        shape.q_lengths.push_back(queries);
        shape.kv_lengths.push_back(keys);
        total_q += queries;
        total_kv += keys;
    };
    if (among_strangers_) {
        for (const Stranger& one : strangers) {
            append(one.queries, one.keys);
        }
        for (int n = 0; n < empty_ones; ++n) {
            append(0, 0);
        }
    }
    for (int64_t b = 0; b < p.batch; ++b) {
        q_offsets.push_back(total_q);
        kv_offsets.push_back(total_kv);
        append(p.q_len, p.kv_len);
        if (among_strangers_) { // the first of them has 70 queries
            const auto from_behind = static_cast<size_t>(b) % std::size(strangers) + 1;
            append(strangers[std::size(strangers) - from_behind].queries, 5);
        }
    }
    shape.problem.batch = std::ssize(shape.q_lengths);
    shape.problem.q_len = std::ranges::max(shape.q_lengths);
    shape.problem.kv_len = std::ranges::max(shape.kv_lengths);

    const auto line_of = [&](std::span<const float> values, int64_t heads, int64_t rows,
                             int64_t total, const std::vector<int64_t>& offsets) {
        const auto size = static_cast<size_t>(heads * rows * p.head_dim);
        if (values.size() != offsets.size() * size) {
            throw Error("a tensor has " + std::to_string(values.size()) +
                        " elements, the problem needs " + std::to_string(offsets.size() * size));
        }
        std::vector<float> line(static_cast<size_t>(total * heads * p.head_dim),
                                std::numeric_limits<float>::quiet_NaN());
        for (size_t b = 0; b < offsets.size(); ++b) {
            to_line(line, heads, p.head_dim, offsets[b], rows, values.subspan(b * size, size));
        }
        return line;
    };
    const std::vector<float> q = line_of(inputs.q, p.heads, p.q_len, total_q, q_offsets),
                             k = line_of(inputs.k, p.kv_heads, p.kv_len, total_kv, kv_offsets),
                             v = line_of(inputs.v, p.kv_heads, p.kv_len, total_kv, kv_offsets);
    return std::make_unique<SequencesOfLine>(
        on_line(shape, {.dtype = inputs.dtype, .q = q, .k = k, .v = v}, margin), p, q_offsets);
}

std::unique_ptr<AnyRun> PackedKind::on_line(const PackedShape& shape, const Inputs& line,
                                            size_t margin) const {
    require_lengths(shape);
    auto run = std::make_unique<DeviceRun>(call_of(shape, line.dtype), margin);
    run->upload(0, line.q);
    run->upload(1, line.k);
    run->upload(2, line.v);
    run->upload(3, ends_of(shape.q_lengths));
    run->upload(4, ends_of(shape.kv_lengths));
    return run;
}

Verdict PackedKind::judge_line(const PackedShape& shape, const Inputs& line,
                               std::span<const float> o, std::span<const float> lse,
                               const Progress& progress, int64_t rows_of_head) const {
    const std::vector<int> q_begins = ends_of(shape.q_lengths),
                           kv_begins = ends_of(shape.kv_lengths);
    Verdict all;
    for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
        const Problem p = shape.of_sequence(b);
        if (p.q_len == 0) {
            continue;
        }
        const int64_t d = p.head_dim;
        const std::vector<float> o_b = from_line(o, p.heads, d, q_begins[b], p.q_len),
                                 lse_b = lse_from_line(lse, p.heads, q_begins[b], p.q_len);
        Verdict one;
        if (p.kv_len == 0) { // nothing for the reference to compute
            constexpr float none = -std::numeric_limits<float>::infinity();
            one.ok = std::ranges::all_of(o_b, [](float x) { return x == 0; }) &&
                     std::ranges::all_of(lse_b, [](float x) { return x == none; });
            one.rows = p.lse_size();
            one.message = one.ok ? "" : "without keys O must be 0 and LSE -inf";
        } else {
            const std::vector<float> q = from_line(line.q, p.heads, d, q_begins[b], p.q_len),
                                     k = from_line(line.k, p.kv_heads, d, kv_begins[b], p.kv_len),
                                     v = from_line(line.v, p.kv_heads, d, kv_begins[b], p.kv_len);
            one = judge(p, {.dtype = line.dtype, .q = q, .k = k, .v = v}, o_b, lse_b, {},
                        rows_of_head);
        }
        all.add(one, "sequence " + std::to_string(b) + " of " + std::to_string(p.q_len) +
                         " queries and " + std::to_string(p.kv_len) + " keys, by itself: ");
        if (progress) {
            progress(static_cast<double>(b + 1) / static_cast<double>(shape.q_lengths.size()));
        }
    }
    return all;
}

} // namespace flash
