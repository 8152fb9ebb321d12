// What backward_packed adds to backward_late_dq: gradients of sequences of any lengths on a line.
// Right, without a fault in any order, whatever stands beside a sequence; and what it fetches and
// writes is the sequences' own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/packed/packed_backward_kind.hpp"
#include "common/tests/harness/temporary_folder.hpp"
#include "reference/check.hpp"
#include "reference/conformance/inputs.hpp"
#include "steps/46_backward_late_dq/backward_late_dq.hpp"
#include "steps/49_backward_packed/backward_packed.hpp"
#include "steps/tests/judged.hpp"
#include "steps/tests/lines.hpp"

namespace {

using flash::DType;
using flash::PackedShape;
using flash::simt::CpAsync;
using flash::simt::KernelProfile;
using flash::simt::Options;
using flash::tests::buffer;
using flash::tests::drawn;
using flash::tests::orders;
using Setup = flash::tests::LineSetup;

const flash::PackedBackwardRung described{.name = "backward_packed",
                                          .fp16 = backward_packed::attention_backward<flash::Half>,
                                          .bf16 =
                                              backward_packed::attention_backward<flash::Bfloat16>,
                                          .head_dims = backward_packed::head_dims,
                                          .workspace_bytes = backward_packed::workspace_bytes,
                                          .backend = flash::device_backend,
                                          .check = flash::reference::check_gradients,
                                          .forward = flash::reference::forward,
                                          .unordered_dQ = true};
const flash::PackedBackwardKind rung{described};

struct Line {
    std::vector<float> q, k, v, o, lse, d_o;
    DType dtype;
    flash::Inputs view() const { return {dtype, q, k, v, o, lse, d_o}; }
};

Line random_line(const PackedShape& shape, DType dtype) {
    const flash::conformance::Case one{.dtype = dtype, .problem = shape.as_one(), .backward = true};
    flash::conformance::Tensors made = flash::conformance::make_inputs(one);
    Line line{made.q, made.k, made.v, {}, {}, made.d_o, dtype};
    flash::ForwardResult forward = rung.forward_on_line(shape, line.view());
    line.o = std::move(forward.o);
    line.lse = std::move(forward.lse);
    return line;
}

struct Gradients {
    std::vector<float> d_q, d_k, d_v;
    explicit Gradients(const flash::AnyRun& run)
        : d_q(run.output(0)), d_k(run.output(1)), d_v(run.output(2)) {}
    flash::Outputs view() const { return {.d_q = d_q, .d_k = d_k, .d_v = d_v}; }
};

/// What the kernels did in one run.
struct Counted {
    KernelProfile gradients, after;
};

/// Runs and judges it twice.
Counted judged(const Setup& s, const Options& chosen = {}) {
    const PackedShape shape = s.shape();
    CAPTURE(s.queries, s.keys, s.heads, s.kv_heads, s.d, s.causal, s.loose);
    const Line line = random_line(shape, s.dtype);
    const flash::tests::Counting counting(chosen);
    const std::unique_ptr<flash::AnyRun> run = rung.on_line(shape, line.view());
    run->run();
    Counted counted{counting.kernel("::gradients"), counting.kernel("::after")};
    const Gradients first(*run);
    run->poison();
    run->run();
    CHECK(run->damage().empty());
    const Gradients second(*run);
    for (const Gradients* const one : {&first, &second}) {
        const flash::Verdict verdict = rung.judge_line(shape, line.view(), one->view());
        if (!verdict.ok) {
            FAIL_CHECK(verdict.message);
        }
        CHECK(verdict.rows == s.heads * shape.total_q());
    }
    CHECK((second.d_k == first.d_k && second.d_v == first.d_v));
    return counted;
}

} // namespace

TEST_CASE("backward_packed is right, without a fault in any order, whatever the lengths") {
    const auto order = GENERATE(0, 1, 2, 3);
    const Setup s = GENERATE(
        Setup{.queries = {5}, .keys = {7}}, // one sequence
        Setup{.queries = {1, 1, 1, 1, 1}, .keys = {1, 1, 1, 1, 1}, .causal = true},
        Setup{.queries = {3, 0, 0, 65, 1}, .keys = {3, 0, 9, 65, 0}, .dtype = DType::fp16},
        // with a mask: fewer queries than keys, and more of them
        Setup{.queries = {40, 1, 64, 7, 0, 140},
              .keys = {200, 90, 64, 3, 31, 5},
              .heads = 4,
              .kv_heads = 2,
              .causal = true,
              .loose = 1000},
        // tiles of 128 rows: full, one row less, one row more
        Setup{.queries = {128, 127, 129}, .keys = {256, 128, 255}, .causal = true},
        Setup{.queries = {128, 127, 129}, .keys = {129, 128, 127}, .d = 128, .dtype = DType::fp16},
        Setup{.queries = {0, 0, 17}, .keys = {150, 0, 140}, .d = 128, .loose = 7},
        Setup{.queries = {17, 0, 0}, .keys = {0, 0, 5}, .causal = true, .dtype = DType::fp16},
        Setup{.queries = drawn(40, 150, 1), .keys = drawn(40, 150, 2), .causal = true});
    CAPTURE(to_string(orders[order].schedule));
    judged(s, orders[order]);
}

TEST_CASE("backward_packed with many kinds of heads") {
    const int64_t d = GENERATE(64, 128);
    const bool causal = GENERATE(false, true);
    const bool loose = GENERATE(false, true);
    judged({.queries = {17, 0, 260, 1, 64, 31, 300},
            .keys = {17, 4, 261, 300, 0, 31, 40},
            .heads = causal ? 6 : 4,
            .kv_heads = causal ? 2 : 4,
            .d = d,
            .causal = causal,
            .dtype = d == 128 ? DType::fp16 : DType::bf16,
            .loose = loose ? 5000 : 0});
}

TEST_CASE("backward_packed fetches and writes what belongs to a sequence, and nothing of its "
          "neighbours") {
    const Setup s = GENERATE(
        Setup{.queries = {300, 1, 65, 0}, .keys = {300, 77, 64, 9}, .heads = 4, .kv_heads = 2},
        Setup{.queries = {300, 1, 65, 9}, .keys = {300, 77, 64, 0}, .d = 128},
        Setup{.queries = {300, 70, 65}, .keys = {310, 7, 64}, .causal = true},
        Setup{.queries = {300, 70, 65}, .keys = {310, 7, 64}, .d = 128, .causal = true},
        Setup{.queries = drawn(70, 300, 1), .keys = drawn(70, 200, 2)});
    const Counted kernels = judged(s);
    const int64_t Br = s.d == 64 ? 128 : 64, Bc = 128;
    int64_t queries = 0, steps = 0; // of one query head
    for (size_t b = 0; b < s.queries.size(); ++b) {
        const flash::Problem p = s.shape().of_sequence(b);
        for (int64_t j0 = 0; j0 < p.kv_len; j0 += Bc) {
            // the first query that sees the tile's first key, if there is a mask
            const int64_t seen = s.causal ? std::max<int64_t>(j0 - (p.kv_len - p.q_len), 0) : 0;
            const int64_t first = seen / Br * Br;
            queries += p.q_len - std::min(first, p.q_len);
            // without queries there is one, for a tile of padding
            steps += std::max<int64_t>((p.q_len + Br - 1) / Br - first / Br, 1);
        }
    }
    const auto bytes = [&](int64_t rows, int64_t heads) {
        return static_cast<uint64_t>(rows * heads * s.d * 2);
    };
    const int64_t total_q = s.shape().total_q(), total_kv = s.shape().total_kv();
    const KernelProfile& kernel = kernels.gradients;
    CHECK(buffer(kernel, "Q").load.bytes == bytes(queries, s.heads));
    CHECK(buffer(kernel, "dO").load.bytes == bytes(queries, s.heads));
    CHECK(buffer(kernel, "K").load.bytes == bytes(total_kv, s.kv_heads));
    CHECK(buffer(kernel, "V").load.bytes == bytes(total_kv, s.kv_heads));
    CHECK(buffer(kernel, "dK").store.bytes == bytes(total_kv, s.kv_heads));
    CHECK(buffer(kernel, "dV").store.bytes == bytes(total_kv, s.kv_heads));
    CHECK(kernel.total.bulk_reduce.bytes == static_cast<uint64_t>(steps * s.heads * Br * s.d * 4));
    CHECK(buffer(kernels.after, "dQ").store.bytes == bytes(total_q, s.heads));
}

TEST_CASE("backward_packed multiplies and fetches what backward_late_dq does where all lengths are "
          "equal") {
    const int64_t d = GENERATE(64, 128);
    const bool causal = GENERATE(false, true);
    const Setup s{.queries = {300, 300}, .keys = {390, 390}, .d = d, .causal = causal};
    const KernelProfile line = judged(s).gradients;
    const flash::Rung& late_dq =
        rung_of(flash::BackwardRung{.name = "backward_late_dq",
                                    .fp16 = backward_late_dq::attention_backward<flash::Half>,
                                    .bf16 = backward_late_dq::attention_backward<flash::Bfloat16>,
                                    .head_dims = backward_late_dq::head_dims,
                                    .workspace_bytes = backward_late_dq::workspace_bytes,
                                    .backend = flash::device_backend,
                                    .check = flash::reference::check_gradients,
                                    .forward = flash::reference::forward,
                                    .unordered_dQ = true});
    const flash::conformance::Case same{
        .dtype = DType::bf16, .problem = s.shape().problem, .backward = true};
    const flash::conformance::Tensors tensors = flash::conformance::make_inputs(same);
    const flash::tests::Counting counting({});
    late_dq.on(same.problem, tensors.view(same.dtype))->run();
    const KernelProfile by_itself = counting.kernel("::gradients");
    CHECK(line.total.wgmma == by_itself.total.wgmma);
    CHECK(line.total.bulk_reduce.bytes == by_itself.total.bulk_reduce.bytes);
    for (const char* const name : {"Q", "K", "V", "dO"}) {
        CHECK(buffer(line, name).load.bytes == buffer(by_itself, name).load.bytes);
    }
}

TEST_CASE("backward_packed gives a sequence the same dK and dV wherever it stands, and what its "
          "neighbours hold") {
    const bool causal = GENERATE(false, true);
    const int64_t d = GENERATE(64, 128);
    const Setup alone{.queries = {150}, .keys = {130}, .d = d, .causal = causal};
    const Setup among{.queries = {1, 150, 7, 0, 33},
                      .keys = {3, 130, 0, 5, 40},
                      .d = d,
                      .causal = causal,
                      .loose = 20};
    const PackedShape one = alone.shape(), five = among.shape();
    const Line line = random_line(one, alone.dtype);
    const auto infinite = [](const std::vector<float>& part, int64_t heads, int64_t width,
                             int64_t rows, int64_t offset, int64_t own) {
        std::vector<float> all(static_cast<size_t>(rows * heads * width), INFINITY);
        flash::to_line(all, heads, width, offset, own,
                       flash::from_line(part, heads, width, 0, own));
        return all;
    };
    const auto queries = [&](const std::vector<float>& part) {
        return infinite(part, 2, d, five.total_q(), 1, 150);
    };
    const auto keys = [&](const std::vector<float>& part) {
        return infinite(part, 1, d, five.total_kv(), 3, 130);
    };
    std::vector<float> lse(static_cast<size_t>(2 * five.total_q()), NAN);
    flash::lse_to_line(lse, 2, 1, 150, line.lse);
    const Line longer{queries(line.q),   keys(line.k), keys(line.v), queries(line.o), lse,
                      queries(line.d_o), alone.dtype};
    const auto first = rung.on_line(one, line.view()), second = rung.on_line(five, longer.view());
    first->run();
    second->run();
    const Gradients by_itself(*first), on_line(*second);
    CHECK(flash::from_line(on_line.d_k, 1, d, 3, 130) == by_itself.d_k);
    CHECK(flash::from_line(on_line.d_v, 1, d, 3, 130) == by_itself.d_v);
    const std::vector<float> d_q = flash::from_line(on_line.d_q, 2, d, 1, 150);
    std::vector<float> own(static_cast<size_t>(150 * 2 * d));
    flash::to_line(own, 2, d, 0, 150, d_q);
    const flash::Verdict verdict =
        rung.judge_line(one, line.view(), {.d_q = own, .d_k = by_itself.d_k, .d_v = by_itself.d_v});
    CHECK(verdict.message == "");
}

namespace {

/// What a caller's tables hold in place of the right ones.
std::vector<int> other_q, other_kv;

/// The rung, after somebody has changed the tables: the SIMT backend's memory is the host's.
template <class T>
void with_other_tables(const flash::Problem& p, const flash::PackedSequences& line, const T* Q,
                       const T* K, const T* V, const T* O, const float* LSE, const T* dO, T* dQ,
                       T* dK, T* dV, void* workspace) {
    std::ranges::copy(other_q, const_cast<int*>(line.cu_seqlens_q));
    std::ranges::copy(other_kv, const_cast<int*>(line.cu_seqlens_kv));
    backward_packed::attention_backward<T>(p, line, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
}

flash::PackedBackwardKind with_changed_tables() {
    flash::PackedBackwardRung changed = described;
    changed.bf16 = with_other_tables<flash::Bfloat16>;
    return flash::PackedBackwardKind(changed);
}

} // namespace

TEST_CASE("gradients: another batch on the same line needs no other launch") {
    const int64_t d = GENERATE(64, 128);
    const Setup planned{.queries = {200, 200}, .keys = {150, 150}, .d = d, .causal = true};
    // it ends before the line does: 30 queries and 50 keys are nobody's
    const Setup batch{.queries = {170, 200}, .keys = {100, 150}, .d = d, .causal = true};
    const PackedShape shape = planned.shape(), shorter = batch.shape();
    other_q = {0, 170, 370};
    other_kv = {0, 100, 250};
    const Line own = random_line(shorter, batch.dtype);
    const auto longer = [&](const std::vector<float>& line, int64_t size) {
        std::vector<float> all = line;
        all.resize(static_cast<size_t>(size), NAN);
        return all;
    };
    std::vector<float> lse(800, NAN);
    flash::lse_to_line(lse, 2, 0, 370, own.lse);
    const Line line{longer(own.q, 400 * 2 * d),
                    longer(own.k, 300 * d),
                    longer(own.v, 300 * d),
                    longer(own.o, 400 * 2 * d),
                    lse,
                    longer(own.d_o, 400 * 2 * d),
                    batch.dtype};
    const auto run = with_changed_tables().on_line(shape, line.view());
    run->run();
    const Gradients found(*run);
    const auto rest_is_poison = [](const std::vector<float>& values, int64_t size) {
        return std::ranges::all_of(std::span(values).subspan(static_cast<size_t>(size)),
                                   [](float x) { return std::isnan(x); });
    };
    CHECK(rest_is_poison(found.d_q, 370 * 2 * d));
    CHECK(rest_is_poison(found.d_k, 250 * d));
    CHECK(rest_is_poison(found.d_v, 250 * d));
    const auto first = [](const std::vector<float>& values, int64_t size) {
        return std::span(values).first(static_cast<size_t>(size));
    };
    const flash::Verdict verdict = rung.judge_line(shorter, own.view(),
                                                   {.d_q = first(found.d_q, 370 * 2 * d),
                                                    .d_k = first(found.d_k, 250 * d),
                                                    .d_v = first(found.d_v, 250 * d)});
    CHECK(verdict.message == "");
    CHECK(verdict.ok);
}

TEST_CASE("gradients: tables that lie touch no row outside of the lines") {
    const auto [q, kv] = GENERATE(
        std::pair<std::vector<int>, std::vector<int>>{{0, 500, 100, 2000}, {0, 90, 3000, 100}},
        std::pair<std::vector<int>, std::vector<int>>{{-70, 40, -5, 200}, {-9, 20, 1000, -1000}},
        std::pair<std::vector<int>, std::vector<int>>{{0, 200, 200, 200}, {0, 260, 260, 260}},
        std::pair<std::vector<int>, std::vector<int>>{{150, 160, 20, 30}, {180, 190, 20, 30}},
        std::pair<std::vector<int>, std::vector<int>>{{INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX},
                                                      {INT32_MAX, INT32_MIN, 0, INT32_MAX}});
    const int64_t d = GENERATE(64, 128);
    const Setup s{.queries = {100, 40, 60}, .keys = {90, 100, 70}, .d = d, .causal = true};
    other_q = q;
    other_kv = kv;
    CAPTURE(q, kv);
    const PackedShape shape = s.shape();
    const Line line = random_line(shape, s.dtype);
    const flash::tests::Counting counting({.cp_async = CpAsync::late});
    const auto run = with_changed_tables().on_line(shape, line.view());
    CHECK_NOTHROW(run->run());
    // the tables are inputs, and changed
    CHECK((run->damage().empty() || run->damage().starts_with("cu_seqlens")));
}

TEST_CASE("gradients: a line is no longer than a map can say") {
    const auto refusal = [](int64_t total_q, int64_t total_kv) {
        try {
            backward_packed::attention_backward<flash::Half>(
                {.q_len = total_q, .kv_len = total_kv, .head_dim = 64, .scale = 1},
                {total_q, total_kv, nullptr, nullptr}, nullptr, nullptr, nullptr, nullptr, nullptr,
                nullptr, nullptr, nullptr, nullptr, nullptr);
        } catch (const flash::Error& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    const int64_t most = int64_t{1} << 30;
    CHECK(refusal(most + 1, 1).starts_with("a line has at most 2^30 rows"));
    CHECK(refusal(1, most + 1).starts_with("a line has at most 2^30 rows"));
    CHECK(refusal(most, most).starts_with("a workspace is needed"));
}

TEST_CASE("the workspace of backward_packed has rows for the line, not for the longest sequence") {
    const flash::Problem p{
        .batch = 22, .heads = 16, .kv_heads = 16, .q_len = 8192, .kv_len = 8192, .head_dim = 128};
    const auto bytes = [&](int64_t total_q) {
        return backward_packed::workspace_bytes(p, {total_q, 16384, nullptr, nullptr});
    };
    const int64_t row = 16 * (2 * 4 + 128 * 4); // LSE, delta and dQ of all heads
    CHECK(bytes(16384) >= (16384 + 22) * row);
    CHECK(bytes(16384) <= (16384 + 23 * 128) * row);
    CHECK(bytes(16384 + 128) - bytes(16384) == 128 * row);
}

TEST_CASE("the program reads lines with dO from a file, and writes their gradients") {
    const std::string golden = FLASH_GOLDEN_DIR, name = "/chunks.safetensors";
    flash::SafetensorsReader forward(golden + "/lines" + name),
        backward(golden + "/backward_lines" + name);
    const flash::test::TemporaryFolder folder;
    const std::string input = folder / "in.safetensors", output = folder / "out.safetensors";
    const std::vector<float> q = forward.read("q"), k = forward.read("k"), v = forward.read("v"),
                             d_o = backward.read("do");
    const std::vector<int64_t>&q_shape = forward.info("q").shape,
          &k_shape = forward.info("k").shape;
    flash::write_safetensors(input, {{"q", DType::fp16, q_shape, q},
                                     {"k", DType::fp16, k_shape, k},
                                     {"v", DType::fp16, k_shape, v},
                                     {"do", DType::fp16, q_shape, d_o}});
    std::vector<std::string> words = {"backward_packed",
                                      "--input",
                                      input,
                                      "--output",
                                      output,
                                      "--lengths",
                                      forward.metadata().at("lengths"),
                                      "--kv-lengths",
                                      forward.metadata().at("kv_lengths"),
                                      "--causal"};
    std::vector<char*> arguments;
    for (std::string& word : words) {
        arguments.push_back(word.data());
    }
    flash::PackedBackwardKind program(described);
    REQUIRE(program.program(static_cast<int>(arguments.size()), arguments.data()) == 0);
    flash::SafetensorsReader written(output);
    for (const auto& [tensor, shape] :
         {std::pair{"dq", q_shape}, {"dk", k_shape}, {"dv", k_shape}}) {
        CHECK(written.info(tensor).shape == shape);
        const std::vector<float> got = written.read(tensor);
        const std::vector<double> exact = backward.read_double(tensor);
        double largest = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
            largest = std::max(largest, std::abs(static_cast<double>(got[i]) - exact[i]));
        }
        CHECK(largest < 0.01);
    }
}
