#include <algorithm>
#include <limits>

#include "common/harness/packed/packed_kind.hpp"
#include "common/harness/packed/placed.hpp"
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

void PackedKind::add_options(CommandLine& line) { options_.add(line); }

Problem PackedKind::problem(const Options& options) {
    shape_ = options_.shape(*this, options);
    return shape_->problem;
}

void PackedKind::plan(Report& report, const Options&) {
    report.flops = shape_->flops();
    plan_line(report, *shape_);
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
    return Placed(p, false).shape;
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
    const Placed placed(p, among_strangers_);
    const std::vector<float> q = placed.queries(inputs.q), k = placed.keys(inputs.k),
                             v = placed.keys(inputs.v);
    return placed.back(
        on_line(placed.shape, {.dtype = inputs.dtype, .q = q, .k = k, .v = v}, margin),
        {Placed::of_queries, Placed::of_lse});
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
