// What the suite's lists for the SIMT backend are too short for in tile_barriers and multistage:
// four slots that are filled again, which takes 257 keys, and blocks of eight warps, which heads of
// 2048 queries get. Right, without a fault, and what they cost.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <string>

#include "common/cuda/launch/sizes.hpp"
#include "steps/28a_tile_barriers/tile_barriers.hpp"
#include "steps/29_multistage/multistage.hpp"
#include "steps/tests/device_rung.hpp"
#include "steps/tests/judged.hpp"

namespace {

using flash::Problem;
using flash::conformance::Case;
using flash::conformance::Kind;
using flash::simt::CpAsync;
using flash::simt::KernelProfile;
using flash::simt::Options;
using flash::simt::Schedule;
using flash::tests::buffer;
using flash::tests::judged;

const flash::Rung& without_large_blocks =
    flash::rung_of(flash::tests::on_device({.name = "tile_barriers",
                                            .fp16 = tile_barriers::attention<flash::Half>,
                                            .bf16 = tile_barriers::attention<flash::Bfloat16>,
                                            .rounded_sums = true}));
const flash::Rung& rung =
    flash::rung_of(flash::tests::on_device({.name = "multistage",
                                            .fp16 = multistage::attention<flash::Half>,
                                            .bf16 = multistage::attention<flash::Bfloat16>,
                                            .rounded_sums = true}));

Problem problem(int64_t N_q, int64_t N_kv, int64_t d, bool causal, int64_t heads = 1) {
    return flash::tests::scaled({.heads = heads,
                                 .kv_heads = 1,
                                 .q_len = N_q,
                                 .kv_len = N_kv,
                                 .head_dim = d,
                                 .causal = causal});
}

} // namespace

TEST_CASE(
    "multistage with eight warps, and with slots that are filled again: right, without a fault in "
    "any order") {
    const Options order = GENERATE(
        Options{},
        Options{.schedule = {Schedule::shuffle, 1}, .cp_async = CpAsync::early, .detect = true},
        Options{
            .schedule = {Schedule::one_warp_ahead, 1}, .cp_async = CpAsync::late, .detect = true});
    struct Path {
        Case c;
        std::string tiles; // in the kernel's name
    };
    // the last block has few queries, and with fewer keys than queries blocks see none
    // see exercise multistage.1
    const auto [c, tiles] = GENERATE(
        Path{{Kind::normal, flash::DType::fp16, problem(2049, 330, 128, false)}, "Tiles<128, 8>"},
        Path{{Kind::normal, flash::DType::bf16, problem(2049, 700, 128, true, 2)}, "Tiles<128, 8>"},
        Path{{Kind::normal, flash::DType::bf16, problem(2100, 2300, 128, true)}, "Tiles<128, 8>"},
        Path{{Kind::towering_middle, flash::DType::fp16, problem(2049, 330, 128, false)},
             "Tiles<128, 8>"},
        Path{{Kind::normal, flash::DType::fp16, problem(113, 203, 128, true, 2)}, "Tiles<128, 4>"},
        Path{{Kind::normal, flash::DType::fp16, problem(150, 700, 64, true, 2)}, "Tiles<64, 4>"},
        Path{{Kind::normal, flash::DType::bf16, problem(150, 700, 32, true, 2)}, "Tiles<32, 4>"});
    CAPTURE(to_string(order.schedule), c.group(), c.name());
    Options chosen = order;
    chosen.shared_kib = 227;
    CHECK(judged(rung, c, chosen).name.find(tiles) != std::string::npos);
}

TEST_CASE("tile_barriers with slots that are filled again: right, without a fault in any order") {
    const Options order = GENERATE(
        Options{},
        Options{.schedule = {Schedule::shuffle, 1}, .cp_async = CpAsync::early, .detect = true},
        Options{
            .schedule = {Schedule::one_warp_ahead, 1}, .cp_async = CpAsync::late, .detect = true});
    const Case c = GENERATE(Case{Kind::normal, flash::DType::fp16, problem(113, 203, 128, true, 2)},
                            Case{Kind::normal, flash::DType::fp16, problem(150, 700, 64, true, 2)},
                            Case{Kind::normal, flash::DType::bf16, problem(150, 700, 32, true, 2)});
    CAPTURE(to_string(order.schedule), c.group(), c.name());
    const KernelProfile kernel = judged(without_large_blocks, c, order);
    CHECK(kernel.total.barriers == kernel.grid.x);
}

TEST_CASE(
    "multistage has eight warps from 2048 queries on at d = 128 where a block may have 227 KiB; K "
    "and V are read half as "
    "often") {
    struct Blocks {
        int shared_kib;
        // of a block: Q, the slots of K and of V, and 1 for the barriers, rounded up
        int64_t N_q, Br, kib;
    };
    const Blocks expected = GENERATE(
        Blocks{99, 2048, 128, 32 + 2 * 2 * 16 + 1}, Blocks{163, 2048, 128, 32 + 2 * 2 * 16 + 1},
        Blocks{227, 2047, 128, 32 + 2 * 2 * 16 + 1}, Blocks{227, 2048, 256, 64 + 4 * 2 * 16 + 1});
    CAPTURE(expected.shared_kib, expected.N_q);
    const Case c{Kind::normal, flash::DType::fp16, problem(expected.N_q, 192, 128, false)};
    const Problem& p = c.problem;
    const KernelProfile kernel = judged(rung, c, Options{.shared_kib = expected.shared_kib});
    const auto blocks = static_cast<uint64_t>(flash::ceil_div(expected.N_q, expected.Br));
    CHECK(kernel.name.find(expected.Br == 256 ? "Tiles<128, 8>" : "Tiles<128, 4>") !=
          std::string::npos);
    CHECK(kernel.grid.x == blocks);
    CHECK(kernel.block.x == static_cast<unsigned>(expected.Br)); // 32 rows per warp
    CHECK(kernel.shared_bytes == static_cast<size_t>(expected.kib) << 10);
    const auto row = static_cast<uint64_t>(p.head_dim * 2); // bytes
    const auto keys = static_cast<uint64_t>(p.kv_len);
    CHECK(buffer(kernel, "Q").load.bytes == static_cast<uint64_t>(p.q_len) * row);
    CHECK(buffer(kernel, "K").load.bytes == blocks * keys * row);
    CHECK(buffer(kernel, "V").load.bytes == blocks * keys * row);
    CHECK(kernel.total.global_load.sectors == kernel.total.global_load.ideal);
    // Q K^T and P V, and P times eight columns of ones: 16 x 8 x 16 multiply-adds each.
    CHECK(kernel.total.mma ==
          2048 * keys * static_cast<uint64_t>(2 * p.head_dim + 8) / (16 * 8 * 16));
    CHECK(kernel.total.shared_load.wavefronts == kernel.total.shared_load.ideal);
    CHECK(kernel.total.async_store.wavefronts == kernel.total.async_store.ideal);
    CHECK(kernel.total.barriers == blocks);
}
