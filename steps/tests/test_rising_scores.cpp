// Rungs that choose m and keep it, on rows that climb: most weights are small, and later ones are
// 2^80 to 2^140 times as large. What was summed up before a climb must not be lost as long as the
// sum still feels it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <array>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

#include "common/harness/files/convert.hpp"
#include "reference/conformance/judge.hpp"
#include "steps/27_lazy_maximum/lazy_maximum.hpp"
#include "steps/28_fixed_maximum/fixed_maximum.hpp"
#include "steps/28a_tile_barriers/tile_barriers.hpp"
#include "steps/29_multistage/multistage.hpp"
#include "steps/31_wgmma_tma/wgmma_tma.hpp"
#include "steps/32_warp_specialization/warp_specialization.hpp"
#include "steps/33_persistent_blocks/persistent_blocks.hpp"
#include "steps/34_overlap/overlap.hpp"
#include "steps/35_window/window.hpp"
#include "steps/51_packed_heads/packed_heads.hpp"
#include "steps/52_split_kv/split_kv.hpp"
#include "steps/52a_page_table/page_table.hpp"
#include "steps/53_paged_kv/paged_kv.hpp"
#include "steps/tests/device_rung.hpp"

namespace {

using flash::DType;
using flash::Problem;
using flash::conformance::Prepared;

const flash::ForwardRung described[] = {{.name = "lazy_maximum",
                                         .fp16 = lazy_maximum::attention<flash::Half>,
                                         .bf16 = lazy_maximum::attention<flash::Bfloat16>,
                                         .rounded_sums = true},
                                        {.name = "fixed_maximum",
                                         .fp16 = fixed_maximum::attention<flash::Half>,
                                         .bf16 = fixed_maximum::attention<flash::Bfloat16>,
                                         .rounded_sums = true},
                                        {.name = "tile_barriers",
                                         .fp16 = tile_barriers::attention<flash::Half>,
                                         .bf16 = tile_barriers::attention<flash::Bfloat16>,
                                         .rounded_sums = true},
                                        {.name = "multistage",
                                         .fp16 = multistage::attention<flash::Half>,
                                         .bf16 = multistage::attention<flash::Bfloat16>,
                                         .rounded_sums = true},
                                        {.name = "wgmma_tma",
                                         .fp16 = wgmma_tma::attention<flash::Half>,
                                         .bf16 = wgmma_tma::attention<flash::Bfloat16>},
                                        {.name = "warp_specialization",
                                         .fp16 = warp_specialization::attention<flash::Half>,
                                         .bf16 = warp_specialization::attention<flash::Bfloat16>},
                                        {.name = "persistent_blocks",
                                         .fp16 = persistent_blocks::attention<flash::Half>,
                                         .bf16 = persistent_blocks::attention<flash::Bfloat16>,
                                         .workspace_bytes = persistent_blocks::workspace_bytes},
                                        {.name = "overlap",
                                         .fp16 = overlap::attention<flash::Half>,
                                         .bf16 = overlap::attention<flash::Bfloat16>,
                                         .workspace_bytes = overlap::workspace_bytes},
                                        {.name = "window",
                                         .fp16 = window::attention<flash::Half>,
                                         .bf16 = window::attention<flash::Bfloat16>,
                                         .workspace_bytes = window::workspace_bytes,
                                         .window_and_sink = true},
                                        {.name = "packed_heads",
                                         .fp16 = packed_heads::attention<flash::Half>,
                                         .bf16 = packed_heads::attention<flash::Bfloat16>,
                                         .rounded_sums = true},
                                        {.name = "split_kv",
                                         .fp16 = split_kv::attention<flash::Half>,
                                         .bf16 = split_kv::attention<flash::Bfloat16>,
                                         .workspace_bytes = split_kv::workspace_bytes,
                                         .rounded_sums = true},
                                        {.name = "page_table",
                                         .fp16 = page_table::attention<flash::Half>,
                                         .bf16 = page_table::attention<flash::Bfloat16>,
                                         .workspace_bytes = page_table::workspace_bytes,
                                         .rounded_sums = true},
                                        {.name = "paged_kv",
                                         .fp16 = paged_kv::attention<flash::Half>,
                                         .bf16 = paged_kv::attention<flash::Bfloat16>,
                                         .workspace_bytes = paged_kv::workspace_bytes,
                                         .rounded_sums = true}};

const std::vector<const flash::Rung*> rungs = [] {
    std::vector<const flash::Rung*> all;
    for (const flash::ForwardRung& rung : described) {
        all.push_back(&flash::rung_of(flash::tests::on_device(rung)));
    }
    return all;
}();

/// One row's scores in units of log2, by the stage that a key belongs to: a few low keys, some on
/// the way, a plateau that nearly all keys share, and a single peak.
constexpr size_t low = 0, step = 1, plateau = 2, peak = 3, stages = 4;
using Climb = std::array<double, stages>;

/// How many keys the first two stages have, and where the peak is.
struct Keys {
    int64_t low, step, peak;
    size_t stage(int64_t j) const {
        return j == peak ? ::peak : j < low ? ::low : j < low + step ? ::step : ::plateau;
    }
};

/// A tile of 128 queries with these climbs; row i has climbs[i / rows], and 32 rows are a warp's. A
/// key is a unit vector of its stage and a query holds the scores of all stages. Column x of V is
/// not 0 for the keys of stage x % 3, so that O tells the share of each but the peak's: that is
/// nearly 1, and beside it a bound that follows max|O| would forgive anything.
Prepared prepare(DType dtype, int64_t N_kv, const Keys& keys, const std::vector<Climb>& climbs,
                 float V = 1, size_t rows = 32) {
    const Problem p{.q_len = 128, .kv_len = N_kv, .head_dim = 64, .scale = 1.0f / 8};
    Prepared prepared{{flash::conformance::Kind::normal, dtype, p}, {}, {}, {}};
    auto& [q, k, v, sink, o, lse, d_o, spoilt] = prepared.tensors;
    q.resize(static_cast<size_t>(p.q_size()));
    k.resize(static_cast<size_t>(p.kv_size()));
    v.resize(static_cast<size_t>(p.kv_size()));
    for (size_t i = 0; i < 128; ++i) {
        for (size_t stage = 0; stage < stages; ++stage) {
            const double score = climbs[i / rows % climbs.size()][stage] * std::numbers::ln2;
            q[i * 64 + stage] = flash::round_to(dtype, static_cast<float>(score));
        }
    }
    for (int64_t j = 0; j < N_kv; ++j) {
        const size_t stage = keys.stage(j), row = static_cast<size_t>(j) * 64;
        k[row + stage] = 8;
        for (size_t x = 0; x < 64; ++x) {
            v[row + x] = x % peak == stage ? V : 0;
        }
    }
    prepared.expected = flash::reference::expect(p, {dtype, q, k, v}, {});
    return prepared;
}

void judge_all(const Prepared& prepared) {
    for (const flash::Rung* rung : rungs) {
        for (const std::string& wrong : flash::conformance::judge(*rung, prepared)) {
            CAPTURE(rung->name);
            FAIL_CHECK(wrong);
        }
    }
}

} // namespace

// The plateau lies 99.5 above the low keys and 26.7 below the peak: its share of the sum is N
// 2^-26.7.
TEST_CASE("a plateau that a late peak nearly hides is still in the sum") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    struct Peak {
        int64_t N_kv;
        bool last;
    };
    const auto [N_kv, last] =
        GENERATE(Peak{4096, true}, Peak{4096, false}, Peak{16384, false}, Peak{65536, true});
    CAPTURE(flash::dtype_name(dtype), N_kv, last);
    judge_all(prepare(dtype, N_kv, {128, 0, last ? N_kv - 1 : N_kv / 2}, {{-63, 0, 36.5, 63.2}}));
}

// Each warp climbs in a way of its own, in one rise or in two, by 80 to 140 in all. The peak is as
// far above the plateau as the plateau's share can still be seen. Every second draw is from where
// exp2 of a rise becomes 0, and the share small.
TEST_CASE("what was summed up before a climb is not lost") {
    const int seed = GENERATE(range(0, 16));
    const DType dtype = seed / 4 % 2 == 0 ? DType::fp16 : DType::bf16;
    CAPTURE(flash::dtype_name(dtype), seed);
    std::mt19937_64 bits(static_cast<uint64_t>(seed));
    const auto between = [&](double from, double to) {
        return from + (to - from) * static_cast<double>(bits() >> 11) * 0x1p-53;
    };
    constexpr int64_t N_kv = 4096;
    std::vector<Climb> climbs;
    for (int warp = 0; warp < 4; ++warp) {
        const double total = warp % 2 == 0 ? between(80, 140) : between(125, 129);
        const double to_plateau = total - (warp % 2 == 0 ? between(10, 26) : between(23, 26));
        const double to_step = seed % 2 == 0 ? 0 : between(0, to_plateau);
        climbs.push_back({-total / 2, to_step - total / 2, to_plateau - total / 2, total / 2});
    }
    const auto low_keys = static_cast<int64_t>(between(1, 200)),
               step_keys = static_cast<int64_t>(between(1, 600));
    const auto peak_key = seed % 4 < 2 ? N_kv - 1 : static_cast<int64_t>(between(900, N_kv));
    judge_all(prepare(dtype, N_kv, {low_keys, step_keys, peak_key}, climbs));
}

// fixed_maximum to multistage take back what a tile that did not fit has added, and compute it
// again, for all rows of a warp. Some rows need it, and others beside them have risen a little or
// not at all.
TEST_CASE("a repaired tile is right in rows that did not need it, too") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const double rise = GENERATE(15, 17, 60, 79, 81, 100, 130, 200);
    const float V = GENERATE(1.0f, 3e4f);
    CAPTURE(flash::dtype_name(dtype), rise, V);
    const Climb wild{-rise / 2, rise / 4, rise / 2, rise / 2 + 3};
    judge_all(prepare(dtype, 1024, {70, 100, 900},
                      {wild, {0, 0, 0, 0}, {0, 3, 9, 12}, {8, 4, -2, -30}}, V, 1));
}

// The least weight that counts is 2^-40 where V is small, and the sums are numbers of fp32.
TEST_CASE("V of 1e-30 is not lost where scores rise") {
    const double rise = GENERATE(20, 75, 90, 140);
    CAPTURE(rise);
    const Climb climb{-rise / 2, 0, rise / 2, rise / 2 + 3};
    judge_all(prepare(DType::bf16, 1024, {128, 128, 1023}, {climb}, 1e-30f));
}

// In bf16 V may be large. Weights stay below 2^40 but for a tile that is repaired, where 64 of them
// may be 2^72, in fixed_maximum to multistage and packed_heads: so V may be 2^50.
TEST_CASE("O is finite where V is as large as 2^49") {
    const double rise = GENERATE(20, 58, 75, 90, 110, 125, 140);
    const bool at_once = GENERATE(true, false);
    CAPTURE(rise, at_once);
    const Climb climb{-rise / 2, at_once ? -rise / 2 : 0, rise / 2, rise / 2};
    judge_all(prepare(DType::bf16, 1024, {128, 128, 1023}, {climb}, 0x1p49f));
}

// Three tiles and a piece of equal keys, with scores of 1e9 to 1e11, of which fp32 has no digit
// left for the room between the largest score and m. Q K^T is exact, so O is the mean of V. Rungs
// that merge parts by LSE are left out: log of the number of keys is lost in theirs.
TEST_CASE("equal scores weigh the same in every tile, however large they are") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    flash::conformance::Case c{
        flash::conformance::Kind::huge_equal, dtype, {.q_len = 33, .kv_len = 194, .head_dim = 64}};
    Prepared prepared = flash::conformance::prepare(c);
    prepared.expected.o_bound = prepared.expected.rounding;
    for (const flash::Rung* rung : rungs) {
        if (rung->name == "split_kv" || rung->name == "page_table" || rung->name == "paged_kv") {
            continue;
        }
        CAPTURE(rung->name);
        for (const std::string& wrong : flash::conformance::judge(*rung, prepared)) {
            FAIL_CHECK(wrong);
        }
    }
}
