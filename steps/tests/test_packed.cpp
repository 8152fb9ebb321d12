// What packed_sequences adds to overlap: sequences of any lengths on a line. Right, without a fault
// in any order, whatever stands beside a sequence; and what it fetches is the sequences' own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/packed/packed_kind.hpp"
#include "reference/check.hpp"
#include "reference/conformance/inputs.hpp"
#include "steps/34_overlap/overlap.hpp"
#include "steps/36_packed_sequences/packed_sequences.hpp"
#include "steps/tests/device_rung.hpp"
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

const flash::PackedRung described{.name = "packed_sequences",
                                  .fp16 = packed_sequences::attention<flash::Half>,
                                  .bf16 = packed_sequences::attention<flash::Bfloat16>,
                                  .head_dims = packed_sequences::head_dims,
                                  .workspace_bytes = packed_sequences::workspace_bytes,
                                  .backend = flash::device_backend,
                                  .check = flash::reference::check};
const flash::PackedKind rung{described};

struct Line {
    std::vector<float> q, k, v;
    DType dtype;
    flash::Inputs view() const { return {.dtype = dtype, .q = q, .k = k, .v = v}; }
};

Line random_line(const PackedShape& shape, DType dtype) {
    const flash::conformance::Case one{.dtype = dtype, .problem = shape.as_one()};
    flash::conformance::Tensors made = flash::conformance::make_inputs(one);
    return {made.q, made.k, made.v, dtype};
}

/// Runs and judges it twice, and returns what the kernel did in one run.
KernelProfile judged(const Setup& s, const Options& chosen = {}) {
    const PackedShape shape = s.shape();
    CAPTURE(s.queries, s.keys, s.heads, s.kv_heads, s.d, s.causal, s.loose);
    const Line line = random_line(shape, s.dtype);
    const flash::tests::Counting counting(chosen);
    const std::unique_ptr<flash::AnyRun> run = rung.on_line(shape, line.view());
    run->run();
    KernelProfile kernel = counting.kernel();
    const std::vector<float> o = run->o(), lse = run->lse();
    run->poison();
    run->run();
    CHECK(run->damage().empty());
    const flash::Verdict verdict = rung.judge_line(shape, line.view(), o, lse);
    if (!verdict.ok) {
        FAIL_CHECK(verdict.message);
    }
    CHECK(verdict.rows == s.heads * shape.total_q());
    CHECK((run->o() == o && run->lse() == lse));
    return kernel;
}

} // namespace

TEST_CASE("packed_sequences is right, without a fault in any order, whatever the lengths") {
    const auto order = GENERATE(0, 1, 2, 3);
    const Setup s = GENERATE(
        Setup{.queries = {5}, .keys = {7}}, // one sequence
        Setup{.queries = {1, 1, 1, 1, 1}, .keys = {1, 1, 1, 1, 1}, .causal = true},
        Setup{.queries = {3, 0, 0, 65, 1}, .keys = {3, 0, 9, 65, 0}, .dtype = DType::fp16},
        // with a mask: fewer queries than keys, as in chunked prefill, and more of them
        Setup{.queries = {40, 1, 64, 7, 0},
              .keys = {200, 90, 64, 3, 31},
              .heads = 4,
              .kv_heads = 2,
              .causal = true,
              .loose = 1000},
        Setup{.queries = {256, 255, 257}, .keys = {64, 65, 63}, .d = 64, .causal = true},
        Setup{.queries = {128, 127, 129}, .keys = {129, 128, 127}, .d = 128, .dtype = DType::fp16},
        Setup{.queries = {130, 2, 90}, .keys = {20, 300, 90}, .d = 256, .causal = true},
        Setup{.queries = {0, 0, 17}, .keys = {5, 0, 140}, .d = 128, .loose = 7},
        Setup{.queries = {17, 0, 0}, .keys = {0, 0, 5}, .d = 256, .dtype = DType::fp16},
        // more sequences than a warp has lanes
        Setup{.queries = drawn(70, 300, 1), .keys = drawn(70, 200, 2), .causal = true});
    CAPTURE(to_string(orders[order].schedule));
    judged(s, orders[order]);
}

TEST_CASE("packed_sequences with many kinds of heads") {
    const int64_t d = GENERATE(64, 128, 256);
    const bool causal = GENERATE(false, true);
    const bool loose = GENERATE(false, true);
    judged({.queries = {17, 0, 260, 1, 64, 31, 600},
            .keys = {17, 4, 261, 300, 0, 31, 40},
            .heads = causal ? 6 : 4,
            .kv_heads = causal ? 2 : 4,
            .d = d,
            .causal = causal,
            .dtype = d == 128 ? DType::fp16 : DType::bf16,
            .loose = loose ? 5000 : 0});
}

TEST_CASE("packed_sequences fetches what belongs to a sequence, and nothing of its neighbours") {
    const Setup s = GENERATE(
        Setup{.queries = {300, 1, 65, 0}, .keys = {300, 77, 64, 9}, .heads = 4, .kv_heads = 2},
        Setup{.queries = {300, 1, 65, 9}, .keys = {300, 77, 64, 0}, .d = 128},
        Setup{.queries = {300, 70, 65}, .keys = {310, 7, 64}, .causal = true},
        Setup{.queries = {300, 70, 65}, .keys = {310, 7, 64}, .d = 256, .causal = true},
        Setup{.queries = drawn(70, 300, 1), .keys = drawn(70, 200, 2)});
    const KernelProfile kernel = judged(s);
    const int64_t Br = s.d == 64 ? 256 : 128, Bc = s.d == 128 ? 128 : 64;
    int64_t keys = 0; // that are fetched for a head: those of whole tiles, up to the sequence's end
    for (size_t b = 0; b < s.queries.size(); ++b) {
        const flash::Problem p = s.shape().of_sequence(b);
        for (int64_t i = 0; i < p.q_len; i += Br) {
            const int64_t seen = p.visible_keys(std::min(i + Br, p.q_len) - 1);
            keys += std::min((seen + Bc - 1) / Bc * Bc, p.kv_len);
        }
    }
    const auto bytes = [&](int64_t rows) {
        return static_cast<uint64_t>(rows * s.heads * s.d * 2); // of each query head
    };
    CHECK(buffer(kernel, "K").load.bytes == bytes(keys));
    CHECK(buffer(kernel, "V").load.bytes == bytes(keys));
    CHECK(buffer(kernel, "Q").load.bytes == bytes(s.shape().total_q()));
    CHECK(buffer(kernel, "O").store.bytes == bytes(s.shape().total_q()));
    CHECK(buffer(kernel, "LSE").store.bytes ==
          static_cast<uint64_t>(s.heads * s.shape().total_q() * 4));
}

TEST_CASE("packed_sequences multiplies and fetches what overlap does where all lengths are equal") {
    const int64_t d = GENERATE(64, 128, 256);
    const bool causal = GENERATE(false, true);
    const KernelProfile line = judged({.queries = {300, 300},
                                       .keys = {390, 390},
                                       .d = d,
                                       .causal = causal,
                                       .dtype = DType::fp16});
    const flash::Rung& overlap =
        rung_of(flash::tests::on_device({.name = "overlap",
                                         .fp16 = overlap::attention<flash::Half>,
                                         .head_dims = overlap::head_dims,
                                         .workspace_bytes = overlap::workspace_bytes}));
    const Setup s{.queries = {300, 300}, .keys = {390, 390}, .d = d, .causal = causal};
    const KernelProfile tensors =
        flash::tests::judged(overlap, {.dtype = DType::fp16, .problem = s.shape().problem});
    CHECK(line.total.wgmma == tensors.total.wgmma);
    for (const char* const name : {"Q", "K", "V"}) {
        CHECK(buffer(line, name).load.bytes == buffer(tensors, name).load.bytes);
    }
}

TEST_CASE("packed_sequences gives a sequence the same bits wherever it stands, and what its "
          "neighbours hold") {
    const bool causal = GENERATE(false, true);
    const int64_t d = GENERATE(64, 128, 256);
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
    const Line longer{infinite(line.q, 2, d, five.total_q(), 1, 150),
                      infinite(line.k, 1, d, five.total_kv(), 3, 130),
                      infinite(line.v, 1, d, five.total_kv(), 3, 130), alone.dtype};
    const auto first = rung.on_line(one, line.view()), second = rung.on_line(five, longer.view());
    first->run();
    second->run();
    CHECK(flash::from_line(second->o(), 2, d, 1, 150) ==
          flash::from_line(first->o(), 2, d, 0, 150));
    CHECK(flash::lse_from_line(second->lse(), 2, 1, 150) ==
          flash::lse_from_line(first->lse(), 2, 0, 150));
}

namespace {

/// What a caller's tables hold in place of the right ones.
std::vector<int> other_q, other_kv;

/// The rung, after somebody has changed the tables: the SIMT backend's memory is the host's.
template <class T>
void with_other_tables(const flash::Problem& p, const flash::PackedSequences& line, const T* Q,
                       const T* K, const T* V, T* O, float* LSE, void* workspace) {
    std::ranges::copy(other_q, const_cast<int*>(line.cu_seqlens_q));
    std::ranges::copy(other_kv, const_cast<int*>(line.cu_seqlens_kv));
    packed_sequences::attention<T>(p, line, Q, K, V, O, LSE, workspace);
}

flash::PackedKind with_changed_tables() {
    flash::PackedRung changed = described;
    changed.bf16 = with_other_tables<flash::Bfloat16>;
    return flash::PackedKind(changed);
}

} // namespace

TEST_CASE("the host knows totals and bounds alone: another batch on the same line needs no other "
          "launch") {
    const Setup planned{.queries = {200, 200}, .keys = {150, 150}, .causal = true};
    const PackedShape shape = planned.shape();
    const Line line = random_line(shape, planned.dtype);
    // it ends before the line does: 30 queries and 50 keys are nobody's
    const Setup batch{.queries = {170, 200}, .keys = {100, 150}, .causal = true};
    other_q = {0, 170, 370};
    other_kv = {0, 100, 250};
    const auto run = with_changed_tables().on_line(shape, line.view());
    run->run();
    PackedShape shorter = batch.shape();
    const std::vector<float> o = run->o(), lse = run->lse();
    // LSE as a line of 370 queries
    std::vector<float> lse_of_370;
    for (int64_t h = 0; h < 2; ++h) {
        const auto from = lse.begin() + h * 400;
        lse_of_370.insert(lse_of_370.end(), from, from + 370);
        CHECK(std::all_of(from + 370, from + 400, [](float x) { return std::isnan(x); }));
    }
    const std::span all(o);
    CHECK(std::ranges::all_of(all.subspan(370 * 2 * 64), [](float x) { return std::isnan(x); }));
    const flash::Inputs inputs{.dtype = planned.dtype,
                               .q = std::span(line.q).first(370 * 2 * 64),
                               .k = std::span(line.k).first(250 * 64),
                               .v = std::span(line.v).first(250 * 64)};
    const flash::Verdict verdict =
        rung.judge_line(shorter, inputs, all.first(370 * 2 * 64), lse_of_370);
    CHECK(verdict.message == "");
    CHECK(verdict.ok);
}

TEST_CASE("tables that lie touch no row outside of the line") {
    const auto [q, kv] = GENERATE(
        std::pair<std::vector<int>, std::vector<int>>{{0, 500, 100, 2000}, {0, 90, 3000, 100}},
        std::pair<std::vector<int>, std::vector<int>>{{-70, 40, -5, 200}, {-9, 20, 1000, -1000}},
        std::pair<std::vector<int>, std::vector<int>>{{0, 200, 200, 200}, {0, 260, 260, 260}},
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

TEST_CASE("a line is no longer than a map can say") {
    const auto refusal = [](int64_t total_q, int64_t total_kv) {
        try {
            packed_sequences::attention<flash::Half>({.batch = 1,
                                                      .heads = 1,
                                                      .kv_heads = 1,
                                                      .q_len = total_q,
                                                      .kv_len = total_kv,
                                                      .head_dim = 64,
                                                      .scale = 1},
                                                     {total_q, total_kv, nullptr, nullptr}, nullptr,
                                                     nullptr, nullptr, nullptr, nullptr, nullptr);
        } catch (const flash::Error& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    const int64_t most = int64_t{1} << 30;
    CHECK(refusal(most + 1, 1).starts_with("a line has at most 2^30 rows"));
    CHECK(refusal(1, most + 1).starts_with("a line has at most 2^30 rows"));
    CHECK(refusal(most, most).starts_with("cannot make a tensor map: the tensor's address is 0"));
}

TEST_CASE("lengths that make no line are refused") {
    const auto on = [](const Setup& s, int64_t sequences) {
        PackedShape shape = s.shape();
        shape.problem.batch = sequences;
        const Line line = random_line(shape, s.dtype);
        rung.on_line(shape, line.view());
    };
    CHECK_NOTHROW(on({.queries = {5, 0}, .keys = {0, 3}}, 2));
    CHECK_THROWS_AS(on({.queries = {5, 0}, .keys = {0, 3}}, 3), flash::Error);
    CHECK_THROWS_AS(on({.queries = {5, 2}, .keys = {1, 3, 4}}, 2), flash::Error);
    CHECK_THROWS_AS(on({.queries = {5, -1}, .keys = {1, 3}}, 2), flash::Error);
    CHECK_THROWS_AS(on({.queries = {5, 1}, .keys = {1, 3}, .loose = -1}, 2), flash::Error);
    PackedShape nothing = Setup{.queries = {1, 1}, .keys = {1, 1}}.shape();
    nothing.kv_lengths = {0, 0};
    CHECK_THROWS_AS(flash::require_lengths(nothing), flash::Error);
}
