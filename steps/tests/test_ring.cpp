// What ring_attention adds to overlap: shards, steps and merges, without processes. All ranks of a
// ring are computed here, one after the other; mpirun.cmake lets K and V travel.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "common/harness/ring/ring_kind.hpp"
#include "common/ranks.hpp"
#include "reference/conformance/judge.hpp"
#include "steps/54_ring_attention/ring_attention.hpp"
#include "steps/tests/device_rung.hpp"

namespace {

using flash::DType;
using flash::Problem;
using flash::Shard;
using flash::conformance::Case;
using flash::conformance::Kind;
using flash::conformance::Prepared;

const flash::RingRung described{
    .alone = flash::tests::on_device({.name = "ring_attention",
                                      .fp16 = ring_attention::attention<flash::Half>,
                                      .bf16 = ring_attention::attention<flash::Bfloat16>,
                                      .head_dims = ring_attention::head_dims,
                                      .workspace_bytes = ring_attention::workspace_bytes}),
    .fp16 = ring_attention::attention_of_rank<flash::Half>,
    .bf16 = ring_attention::attention_of_rank<flash::Bfloat16>,
    .workspace_bytes = ring_attention::workspace_bytes_of_rank};

Problem problem(int64_t N, int64_t d, bool causal, int64_t heads = 2, int64_t kv_heads = 1) {
    return flash::tests::scaled({.heads = heads,
                                 .kv_heads = kv_heads,
                                 .q_len = N,
                                 .kv_len = N,
                                 .head_dim = d,
                                 .causal = causal});
}

/// Everything that must hold when `ranks` ranks compute the case.
void judge(const Case& c, int ranks) {
    CAPTURE(c.group(), c.name(), ranks);
    const flash::Rung& ring = flash::rung_of(described, ranks);
    for (const std::string& wrong :
         flash::conformance::judge(ring, flash::conformance::prepare(c))) {
        FAIL_CHECK(wrong);
    }
}

/// O's error, as the reference sees it, when `ranks` ranks compute the case.
double error_of(const Prepared& prepared, int ranks) {
    const Case& c = prepared.c;
    const auto run = flash::rung_of(described, ranks).on(c.problem, prepared.tensors.view(c.dtype));
    run->run();
    const std::vector<float> o = run->o(), lse = run->lse();
    const flash::Verdict verdict =
        flash::reference::compare(c.problem, prepared.expected, {o, lse});
    CHECK(verdict.ok);
    return verdict.o_error;
}

} // namespace

TEST_CASE("every row has one place in the shards, and all ranks' steps are equally large") {
    const int64_t length = GENERATE(1, 2, 7, 16, 301, 4096);
    const int ranks = GENERATE(1, 2, 3, 4, 5, 8);
    CAPTURE(length, ranks);
    std::vector<int> held(static_cast<size_t>(length));
    int64_t least = length, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard{length, ranks, rank};
        for (const int chunk : {shard.early(), shard.late()}) {
            const int64_t rows = shard.begin(chunk + 1) - shard.begin(chunk);
            least = std::min(least, rows);
            most = std::max(most, rows);
            for (int64_t i = shard.begin(chunk); i < shard.begin(chunk + 1); ++i) {
                ++held[static_cast<size_t>(i)];
            }
        }
    }
    CHECK(std::ranges::count(held, 1) == length);
    CHECK(most - least <= 1);
}

// The suite itself has three ranks.
TEST_CASE("the suite's square cases, by 2, 4 and 5 ranks") {
    const int ranks = GENERATE(2, 4, 5);
    const flash::conformance::Scope scope = flash::conformance::scope_of(flash::rung_of(described));
    int judged = 0;
    for (const Case& c : flash::conformance::detect(scope).cases) {
        if (c.problem.q_len == c.problem.kv_len) {
            judge(c, ranks);
            ++judged;
        }
    }
    CHECK(judged > 10);
}

TEST_CASE("lengths that the ranks do not divide, some of whose chunks are empty or one row long") {
    const int ranks = GENERATE(2, 3, 5, 8);
    const int64_t length = GENERATE(1, 3, 9, 65, 131, 301);
    const bool causal = GENERATE(false, true);
    const int64_t d = length == 131 ? 128 : length == 65 ? 256 : 64;
    const DType dtype = ranks % 2 == 0 ? DType::fp16 : DType::bf16;
    const Problem p = problem(length, d, causal, 4, ranks % 3 == 0 ? 4 : 2);
    judge({.kind = Kind::normal, .dtype = dtype, .problem = p, .runs = 2}, ranks);
}

TEST_CASE("scores that rise, tower or fall along the ring") {
    const Kind kind = GENERATE(Kind::rises_2000, Kind::towering_first, Kind::towering_middle,
                               Kind::towering_last, Kind::negative_scores, Kind::logits_6e4);
    const bool causal = GENERATE(false, true);
    judge({.kind = kind, .dtype = DType::fp16, .problem = problem(200, 64, causal)}, 4);
}

TEST_CASE("eight ranks are at most a tenth further from the reference than one") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const bool causal = GENERATE(false, true);
    CAPTURE(flash::dtype_name(dtype), causal);
    const Prepared prepared = flash::conformance::prepare(
        {.kind = Kind::normal, .dtype = dtype, .problem = problem(512, 64, causal, 4, 4)});
    CHECK(error_of(prepared, 8) <= 1.1 * error_of(prepared, 1));
}

TEST_CASE("heads that go round in portions get the same bits, in less workspace") {
    const bool causal = GENERATE(false, true);
    const int64_t length = GENERATE(3, 131); // of five ranks some have no rows of three
    Problem p = problem(length, 64, causal, 6, 3);
    p.batch = 2; // six K/V heads, so that four portions differ
    const Prepared prepared =
        flash::conformance::prepare({.kind = Kind::normal, .dtype = DType::fp16, .problem = p});
    const auto run = [&](int portions) {
        const auto ring =
            flash::rung_of(described, 5, portions).on(p, prepared.tensors.view(DType::fp16));
        ring->run();
        CHECK(ring->damage().empty());
        return std::tuple(ring->o(), ring->lse(), ring->workspace_bytes());
    };
    const auto [o, lse, bytes] = run(1);
    for (const int portions : {2, 4, 6}) {
        CAPTURE(portions);
        const auto [o_now, lse_now, bytes_now] = run(portions);
        CHECK(o_now == o);
        CHECK(lse_now == lse);
        CHECK(bytes_now < bytes);
    }
}

TEST_CASE("a row that has seen no key, before a step or in it, merges without NaN") {
    using flash::Half;
    constexpr int64_t N = 8, d = 64;
    const float infinity = std::numeric_limits<float>::infinity();
    flash::Backend& backend = flash::device_backend();
    const auto memory = [&]<class T>(const std::vector<T>& values) {
        auto made = backend.allocate(values.size() * sizeof(T));
        made->write(0, values.data(), values.size() * sizeof(T));
        return made;
    };
    // all scores are equal: O is the mean of the V that a row has seen, and LSE the log of their
    // number
    std::vector<Half> values(N * d), zeros(N * d);
    for (int64_t i = 0; i < N * d; ++i) {
        values[static_cast<size_t>(i)] = flash::from_float<Half>(static_cast<float>(i / d));
    }
    const auto Q = memory(zeros), K = memory(zeros), V = memory(values);
    const auto O = memory(zeros);
    const auto LSE = memory(std::vector<float>(N)), O_sum = memory(std::vector<float>(N * d));
    const auto drawn = memory(std::vector<unsigned>(1));
    const auto step = [&](int64_t keys, bool first) {
        Problem p = problem(N, d, true, 1); // bottom-right: with few keys, the first rows see none
        p.kv_len = keys;
        ring_attention::add<Half>(
            {p, N, N, first, false}, static_cast<const Half*>(Q->data()),
            static_cast<const Half*>(K->data()), static_cast<const Half*>(V->data()),
            static_cast<Half*>(O->data()), static_cast<float*>(LSE->data()),
            static_cast<float*>(O_sum->data()), static_cast<unsigned*>(drawn->data()));
        backend.synchronize();
    };
    const auto check = [&](const std::vector<int64_t>& steps) {
        std::vector<Half> o(N * d);
        std::vector<float> lse(N);
        O->read(0, o.data(), o.size() * sizeof(Half));
        LSE->read(0, lse.data(), lse.size() * sizeof(float));
        for (int64_t i = 0; i < N; ++i) {
            double sum = 0, seen = 0;
            for (const int64_t keys : steps) {
                for (int64_t j = 0; j <= i + keys - N; ++j) {
                    sum += static_cast<double>(j);
                    ++seen;
                }
            }
            CAPTURE(i, seen);
            const double expected = seen == 0 ? 0 : sum / seen;
            const auto at = static_cast<size_t>(i);
            CHECK(std::abs(static_cast<double>(flash::to_float(o[at * d + 5])) - expected) < 4e-3);
            if (seen == 0) {
                CHECK(lse[at] == -infinity);
            } else {
                CHECK(std::abs(static_cast<double>(lse[at]) - std::log(seen)) < 1e-5);
            }
        }
    };
    step(3, true); // rows 0 to 4 see nothing
    check({3});
    step(2, false); // and rows 0 to 5 nothing here: rows on neither side, and on one
    check({3, 2});
    step(N, false);
    check({3, 2, N});
    step(2, false);
    check({3, 2, N, 2});
}

TEST_CASE("a ring refuses what it cannot do") {
    Problem p = problem(8, 64, true);
    p.kv_len = 9;
    const std::vector<float> q(8 * 64 * 2), kv(9 * 64);
    CHECK_THROWS_AS(flash::rung_of(described, 2).on(p, {DType::fp16, q, kv, kv}), flash::Error);
    CHECK_THROWS_AS(flash::require_ring(problem(8, 64, true), 1 << 20, 1), flash::Error);
    CHECK_THROWS_AS(flash::require_ring(problem(8, 64, true, 6, 3), 2, 4), flash::Error);
}
