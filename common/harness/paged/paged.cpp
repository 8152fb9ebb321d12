#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

#include "common/harness/files/text.hpp"
#include "common/harness/paged/paged_kind.hpp"
#include "common/harness/program/command_line.hpp"
#include "common/harness/program/limits.hpp"
#include "common/harness/program/run_report.hpp"

namespace flash {
namespace {

constexpr int64_t usual_page = 64;

template <class T>
std::function<void(const Call::Pointers&)> bound(const PagedCache& cache,
                                                 ForwardPaged<T> function) {
    const PagedKV<T> pages{.K = nullptr,
                           .V = nullptr,
                           .page_stride = cache.page_stride(),
                           .head_stride = cache.head_stride(),
                           .row_stride = cache.row_stride(),
                           .page = cache.page,
                           .table = nullptr,
                           .most_pages = cache.most_pages(),
                           .lengths = nullptr};
    return [p = cache.problem, pages, function](const Call::Pointers& at) {
        PagedKV<T> kv = pages;
        kv.K = at.in<T>(1);
        kv.V = at.in<T>(2);
        kv.table = at.in<int>(3);
        kv.lengths = at.in<int>(4);
        function(p, kv, at.in<T>(0), at.out<T>(0), at.out<float>(1), at.workspace);
    };
}

} // namespace

Rung& rung_of(const PagedRung& rung) { return kept(std::make_unique<PagedKind>(rung)); }

Help PagedKind::help() const {
    return {.examples = "  " + name +
                        " --batch 3 --kv-len 1000 --q-len 1 --lengths 1000,0,37\n"
                        "      K and V in pages, and three sequences of other lengths\n"};
}

void PagedKind::add_options(CommandLine& line) {
    line.add_size("--page", page_,
                  "Lay K and V into pages of N keys, in random order; N is a multiple of 16 (64)");
    line.add_text(
        "--lengths", "LIST", lengths_given_,
        "Keys of each sequence in these pages, 0 to N_kv: 1000,0,37 or random (all N_kv)");
}

void PagedKind::plan(Report& report, const Options&) {
    if (!in_pages()) {
        return;
    }
    const Problem& p = report.problem;
    if (!lengths_given_) {
        lengths_.assign(static_cast<size_t>(p.batch), p.kv_len);
    } else if (*lengths_given_ == "random") {
        lengths_ = random_lengths(p, report.seed);
    } else {
        const std::optional<std::vector<int64_t>> lengths = whole_numbers(*lengths_given_);
        if (!lengths) {
            throw Error("--lengths needs whole numbers with commas between them, or random, got " +
                        in_quotes(*lengths_given_));
        }
        lengths_ = *lengths;
    }
    const int64_t page = page_.value_or(usual_page);
    require_lengths(p, page, lengths_);

    report.flops = 0;
    std::string list;
    for (const int64_t length : lengths_) {
        Problem sequence = p;
        sequence.batch = 1;
        sequence.kv_len = length;
        report.flops += sequence.flops();
        list += (list.empty() ? "" : ",") + std::to_string(length);
    }
    report.kind_fields = {{"page", std::to_string(page)}, {"lengths", "[" + list + "]"}};
    const auto [least, most] = std::ranges::minmax(lengths_);
    const auto sum =
        static_cast<double>(std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0}));
    char line[128];
    std::snprintf(line, sizeof line,
                  "cache     pages of %lld keys, lengths %lld to %lld, on average %.0f\n",
                  static_cast<long long>(page), static_cast<long long>(least),
                  static_cast<long long>(most), sum / static_cast<double>(lengths_.size()));
    report.kind_lines = line;
}

void PagedKind::require_memory(const Report& report, const Options& options) const {
    const Problem& p = report.problem;
    // K and V again, in pages
    const double again = in_pages() ? 2 * static_cast<double>(p.kv_size()) * sizeof(float) : 0;
    flash::require_memory(call(p, report.dtype), AnyRun::default_margin,
                          host_bytes(p, report.dtype, options.check) + again);
}

Task PagedKind::task(const Report& report, const Options& options) {
    if (!in_pages()) {
        return ForwardKind::task(report, options);
    }
    const auto tensors = std::make_shared<HostTensors>(input_of(report, options));
    const auto cache = std::make_shared<PagedCache>(
        flash::in_pages(report.problem, tensors->view(),
                        static_cast<int>(page_.value_or(usual_page)), lengths_, report.seed));
    tensors->k = tensors->v = {}; // the cache has them
    const std::shared_ptr<AnyRun> run = on_pages(*cache, tensors->dtype, tensors->q);
    return {run, [=, this](const Progress& progress, int64_t rows) {
                return judge_pages(*cache, tensors->dtype, tensors->q, run->o(), run->lse(),
                                   progress, rows);
            }};
}

Rung::Way PagedKind::other_way(const Problem&) const {
    if (in_pages()) {
        return {};
    }
    return {std::make_unique<PagedKind>(paged_, page_multiple), "with K and V in pages of 16 keys"};
}

std::unique_ptr<AnyRun> PagedKind::make_run(const Problem& problem, const Inputs& inputs,
                                            size_t margin) const {
    if (!in_pages()) {
        return ForwardKind::make_run(problem, inputs, margin);
    }
    const std::vector<int64_t> lengths(static_cast<size_t>(problem.batch), problem.kv_len);
    const auto page = static_cast<int>(page_.value_or(usual_page));
    return on_pages(flash::in_pages(problem, inputs, page, lengths, 1), inputs.dtype, inputs.q,
                    margin);
}

std::unique_ptr<AnyRun> PagedKind::on_pages(const PagedCache& cache, DType dtype,
                                            std::span<const float> q, size_t margin) const {
    require_supported(*this, cache.problem, dtype);
    require_table(cache);
    Call call = this->call(cache.problem, dtype);
    const auto size = [](const auto& values) { return std::vector<int64_t>{std::ssize(values)}; };
    call.inputs[1].shape = size(cache.k);
    call.inputs[2].shape = size(cache.v);
    call.inputs.push_back({"the table", DType::fp32, size(cache.table)});
    call.inputs.push_back({"the lengths", DType::fp32, size(cache.lengths)});
    call.function = dtype == DType::fp16 ? bound(cache, paged_.fp16) : bound(cache, paged_.bf16);
    auto run = std::make_unique<DeviceRun>(std::move(call), margin);
    run->upload(0, q);
    run->upload(1, cache.k);
    run->upload(2, cache.v);
    run->upload(3, cache.table);
    run->upload(4, cache.lengths);
    return run;
}

Verdict PagedKind::judge_pages(const PagedCache& cache, DType dtype, std::span<const float> q,
                               std::span<const float> o, std::span<const float> lse,
                               const Progress& progress, int64_t rows_of_head) const {
    const int64_t B = cache.problem.batch;
    Verdict all;
    for (int64_t b = 0; b < B; ++b) {
        const Problem p = cache.of_sequence(b);
        const auto of_b = [b](std::span<const float> whole, int64_t size) {
            return whole.subspan(static_cast<size_t>(b * size), static_cast<size_t>(size));
        };
        const auto o_b = of_b(o, p.q_size()), lse_b = of_b(lse, p.lse_size());
        Verdict one;
        if (p.kv_len == 0) { // nothing for the reference to compute
            constexpr float none = -std::numeric_limits<float>::infinity();
            one.ok = std::ranges::all_of(o_b, [](float x) { return x == 0; }) &&
                     std::ranges::all_of(lse_b, [](float x) { return x == none; });
            one.rows = p.lse_size();
            one.message = one.ok ? "" : "without keys O must be 0 and LSE -inf";
        } else {
            const std::vector<float> k = cache.of_sequence(b, cache.k),
                                     v = cache.of_sequence(b, cache.v);
            one = judge(p, {dtype, of_b(q, p.q_size()), k, v}, o_b, lse_b, {}, rows_of_head);
        }
        all.add(one, "sequence " + std::to_string(b) + " of " +
                         std::to_string(cache.lengths[static_cast<size_t>(b)]) +
                         " keys, by itself: ");
        if (progress) {
            progress(static_cast<double>(b + 1) / static_cast<double>(B));
        }
    }
    return all;
}

} // namespace flash
