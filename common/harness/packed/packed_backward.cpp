#include <algorithm>
#include <limits>
#include <string>

#include "common/harness/backward/backward_input.hpp"
#include "common/harness/packed/packed_backward_kind.hpp"
#include "common/harness/packed/placed.hpp"

namespace flash {
namespace {

PackedSequences totals_of(const PackedShape& shape) {
    return {.total_q = shape.total_q(),
            .total_kv = shape.total_kv(),
            .cu_seqlens_q = nullptr,
            .cu_seqlens_kv = nullptr};
}

template <class T>
std::function<void(const Call::Pointers&)> bound(const PackedShape& shape,
                                                 const BackwardPacked<T>& function) {
    return [p = shape.problem, totals = totals_of(shape), function](const Call::Pointers& at) {
        PackedSequences line = totals;
        line.cu_seqlens_q = at.in<int>(6);
        line.cu_seqlens_kv = at.in<int>(7);
        function(p, line, at.in<T>(0), at.in<T>(1), at.in<T>(2), at.in<T>(3), at.in<float>(4),
                 at.in<T>(5), at.out<T>(0), at.out<T>(1), at.out<T>(2), at.workspace);
    };
}

/// A sequence's tensors by itself.
struct OwnTensors {
    std::vector<float> q, k, v, o, lse, d_o;

    OwnTensors(const Problem& p, const Inputs& line, int64_t q_begin, int64_t kv_begin) {
        const auto queries = [&](std::span<const float> values) {
            return values.empty() ? std::vector<float>()
                                  : from_line(values, p.heads, p.head_dim, q_begin, p.q_len);
        };
        q = queries(line.q);
        k = from_line(line.k, p.kv_heads, p.head_dim, kv_begin, p.kv_len);
        v = from_line(line.v, p.kv_heads, p.head_dim, kv_begin, p.kv_len);
        o = queries(line.o);
        lse = line.lse.empty() ? std::vector<float>()
                               : lse_from_line(line.lse, p.heads, q_begin, p.q_len);
        d_o = queries(line.d_o);
    }
    Inputs view(DType dtype) const { return {dtype, q, k, v, o, lse, d_o}; }
};

bool all_zero(const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float x) { return x == 0; });
}

} // namespace

Rung& rung_of(const PackedBackwardRung& rung) {
    return kept(std::make_unique<PackedBackwardKind>(rung));
}

PackedBackwardKind::PackedBackwardKind(const PackedBackwardRung& rung, bool among_strangers)
    : Rung(rung, nullptr), packed_(rung), among_strangers_(among_strangers) {
    has_gradients = true;
    unordered_dQ = rung.unordered_dQ;
}

Help PackedBackwardKind::help() const {
    return {.title = "dQ, dK, dV from Q, K, V, O, LSE, dO",
            .input = ", as lines of tokens: (tokens, heads, d). It may hold do (else random), and "
                     "o with lse (else computed)",
            .output = "dq, dk and dv, of the lines,",
            .file_example =
                " --input line.safetensors --lengths 100,37,0 --output gradients.safetensors\n"
                "      lines q, k, v, do of 137 tokens from a file, dq, dk, dv to another\n",
            .examples = "  " + name +
                        " --lengths 1000,0,37 --kv-lengths 1000,5,500 --causal\n"
                        "      three sequences one after the other, of these queries and keys\n"};
}

void PackedBackwardKind::add_options(CommandLine& line) { options_.add(line); }

Problem PackedBackwardKind::problem(const Options& options) {
    shape_ = options_.shape(*this, options);
    return shape_->problem;
}

void PackedBackwardKind::plan(Report& report, const Options&) {
    report.flops = shape_->flops(true);
    plan_line(report, *shape_);
}

Task PackedBackwardKind::task(const Report& report, const Options& options) {
    const PackedShape shape = *shape_;
    const Problem one = shape.as_one(); // one sequence has tensors of the same size
    const GradientShapes shapes{.o = {one.q_len, one.heads, one.head_dim},
                                .lse = {one.heads, one.q_len}};
    const auto forward = [&](const Inputs& line, const Progress& progress) {
        return forward_on_line(shape, line, progress);
    };
    const auto tensors =
        std::make_shared<BackwardTensors>(input_of(one, report, options, shapes, forward));
    const std::shared_ptr<AnyRun> run = on_line(shape, tensors->view());
    return {run, [=, this](const Progress& progress, int64_t rows) {
                const auto d_q = run->output(0), d_k = run->output(1), d_v = run->output(2);
                return judge_line(shape, tensors->view(), {.d_q = d_q, .d_k = d_k, .d_v = d_v},
                                  progress, rows);
            }};
}

PackedShape PackedBackwardKind::shape_of(const Problem& p) const {
    if (shape_) {
        return *shape_;
    }
    return Placed(p, false).shape;
}

std::vector<TensorSpec> PackedBackwardKind::outputs(const Problem& p, DType dtype) const {
    return call(p, dtype).outputs;
}

std::vector<NamedError> PackedBackwardKind::errors(const Verdict& verdict) const {
    return errors_of_gradients(verdict);
}

Call PackedBackwardKind::call(const Problem& p, DType dtype) const {
    return call_of(shape_of(p), dtype);
}

Call PackedBackwardKind::call_of(const PackedShape& shape, DType dtype) const {
    const Problem& p = shape.problem;
    const std::vector<int64_t> q = {shape.total_q(), p.heads, p.head_dim},
                               kv = {shape.total_kv(), p.kv_heads, p.head_dim};
    Call call = call_with(p,
                          {{"Q", dtype, q},
                           {"K", dtype, kv},
                           {"V", dtype, kv},
                           {"O", dtype, q},
                           {"LSE", DType::fp32, {p.heads, shape.total_q()}},
                           {"dO", dtype, q},
                           {"cu_seqlens_q", DType::fp32, {p.batch + 1}},
                           {"cu_seqlens_kv", DType::fp32, {p.batch + 1}}},
                          {{"dQ", dtype, q}, {"dK", dtype, kv}, {"dV", dtype, kv}});
    if (packed_.workspace_bytes != nullptr) {
        call.workspace_bytes = [p, totals = totals_of(shape), bytes = packed_.workspace_bytes] {
            return bytes(p, totals);
        };
    }
    call.function = dtype == DType::fp32   ? bound(shape, packed_.fp32)
                    : dtype == DType::fp16 ? bound(shape, packed_.fp16)
                                           : bound(shape, packed_.bf16);
    return call;
}

double PackedBackwardKind::host_bytes(const Problem& p, DType dtype, bool check) const {
    return host_bytes_of_gradients(shape_of(p).as_one(), dtype, check);
}

Rung::Way PackedBackwardKind::other_way(const Problem&) const {
    if (among_strangers_) {
        return {};
    }
    return {std::make_unique<PackedBackwardKind>(packed_, true),
            "among sequences of other lengths that hold NaN"};
}

std::unique_ptr<AnyRun> PackedBackwardKind::make_run(const Problem& p, const Inputs& inputs,
                                                     size_t margin) const {
    const Placed placed(p, among_strangers_);
    const std::vector<float> q = placed.queries(inputs.q), k = placed.keys(inputs.k),
                             v = placed.keys(inputs.v), o = placed.queries(inputs.o),
                             lse = placed.lse(inputs.lse), d_o = placed.queries(inputs.d_o);
    return placed.back(on_line(placed.shape, {inputs.dtype, q, k, v, o, lse, d_o}, margin),
                       {Placed::of_queries, Placed::of_keys, Placed::of_keys});
}

std::unique_ptr<AnyRun> PackedBackwardKind::on_line(const PackedShape& shape, const Inputs& line,
                                                    size_t margin) const {
    require_lengths(shape);
    auto run = std::make_unique<DeviceRun>(call_of(shape, line.dtype), margin);
    const std::span<const float> tensors[] = {line.q, line.k, line.v, line.o, line.lse, line.d_o};
    for (size_t i = 0; i < std::size(tensors); ++i) {
        run->upload(i, tensors[i]);
    }
    run->upload(6, ends_of(shape.q_lengths));
    run->upload(7, ends_of(shape.kv_lengths));
    return run;
}

ForwardResult PackedBackwardKind::forward_on_line(const PackedShape& shape, const Inputs& line,
                                                  const Progress& progress) const {
    const std::vector<int> q_begins = ends_of(shape.q_lengths),
                           kv_begins = ends_of(shape.kv_lengths);
    const Problem all = shape.as_one();
    // without keys O = 0 and LSE = -inf
    ForwardResult result{std::vector<float>(static_cast<size_t>(all.q_size())),
                         std::vector<float>(static_cast<size_t>(all.lse_size()),
                                            -std::numeric_limits<float>::infinity())};
    for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
        const Problem p = shape.of_sequence(b);
        if (p.q_len > 0 && p.kv_len > 0) {
            const OwnTensors own(p, line, q_begins[b], kv_begins[b]);
            const ForwardResult one = packed_.forward(p, own.view(line.dtype), {});
            to_line(result.o, p.heads, p.head_dim, q_begins[b], p.q_len, one.o);
            lse_to_line(result.lse, p.heads, q_begins[b], p.q_len, one.lse);
        }
        if (progress) {
            progress(static_cast<double>(b + 1) / static_cast<double>(shape.q_lengths.size()));
        }
    }
    return result;
}

Verdict PackedBackwardKind::judge_line(const PackedShape& shape, const Inputs& line,
                                       const Outputs& outputs, const Progress& progress,
                                       int64_t rows_of_head) const {
    const std::vector<int> q_begins = ends_of(shape.q_lengths),
                           kv_begins = ends_of(shape.kv_lengths);
    Verdict all;
    for (size_t b = 0; b < shape.q_lengths.size(); ++b) {
        const Problem p = shape.of_sequence(b);
        const auto of_keys = [&](std::span<const float> values) {
            return from_line(values, p.kv_heads, p.head_dim, kv_begins[b], p.kv_len);
        };
        const std::vector<float> d_q = from_line(outputs.d_q, p.heads, p.head_dim, q_begins[b],
                                                 p.q_len),
                                 d_k = of_keys(outputs.d_k), d_v = of_keys(outputs.d_v);
        Verdict one;
        if (p.q_len == 0 || p.kv_len == 0) { // nothing for the reference to compute
            one.ok = all_zero(d_q) && all_zero(d_k) && all_zero(d_v);
            one.rows = p.lse_size();
            one.message = one.ok ? "" : "without keys dQ must be 0, without queries dK and dV";
        } else {
            const OwnTensors own(p, line, q_begins[b], kv_begins[b]);
            one = packed_.check(p, own.view(line.dtype), {.d_q = d_q, .d_k = d_k, .d_v = d_v}, {},
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
