// What packed_heads and split_kv claim about decoding: few queries, many keys. Right, without a
// fault, and how often each byte is read.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/cuda/launch/sizes.hpp"
#include "steps/29_multistage/multistage.hpp"
#include "steps/51_packed_heads/packed_heads.hpp"
#include "steps/52_split_kv/split_kv.hpp"
#include "steps/tests/device_rung.hpp"
#include "steps/tests/judged.hpp"

namespace {

using flash::DType;
using flash::Problem;
using flash::conformance::Case;
using flash::conformance::Kind;
using flash::simt::CpAsync;
using flash::simt::KernelProfile;
using flash::simt::Options;
using flash::simt::Schedule;
using flash::tests::buffer;
using flash::tests::judged;

const flash::Rung& multistage_rung =
    flash::rung_of(flash::tests::on_device({.name = "multistage",
                                            .fp16 = multistage::attention<flash::Half>,
                                            .bf16 = multistage::attention<flash::Bfloat16>,
                                            .rounded_sums = true}));
const flash::Rung& packed_heads_rung =
    flash::rung_of(flash::tests::on_device({.name = "packed_heads",
                                            .fp16 = packed_heads::attention<flash::Half>,
                                            .bf16 = packed_heads::attention<flash::Bfloat16>,
                                            .rounded_sums = true}));
const flash::Rung& split_kv_rung =
    flash::rung_of(flash::tests::on_device({.name = "split_kv",
                                            .fp16 = split_kv::attention<flash::Half>,
                                            .bf16 = split_kv::attention<flash::Bfloat16>,
                                            .workspace_bytes = split_kv::workspace_bytes,
                                            .rounded_sums = true}));

/// `sequences` of one K/V head each, with `group` query heads.
Problem problem(int64_t sequences, int64_t group, int64_t N_q, int64_t N_kv, int64_t d,
                bool causal = false) {
    return flash::tests::scaled({.batch = sequences,
                                 .heads = group,
                                 .kv_heads = 1,
                                 .q_len = N_q,
                                 .kv_len = N_kv,
                                 .head_dim = d,
                                 .causal = causal});
}

KernelProfile judged(const flash::Rung& rung, const Problem& p) {
    return flash::tests::judged(rung, Case{Kind::normal, DType::bf16, p});
}

uint64_t halves(int64_t count) { return static_cast<uint64_t>(count) * 2; } // bytes
uint64_t floats(int64_t count) { return static_cast<uint64_t>(count) * 4; }

} // namespace

TEST_CASE("multistage reads K and V once for each query head, packed_heads once for each group") {
    const int64_t group = GENERATE(1, 4, 7);
    const int64_t d = GENERATE(32, 64, 128);
    const Problem p = problem(2, group, 1, 150, d);
    CAPTURE(group, d);
    const KernelProfile before = judged(multistage_rung, p), packed = judged(packed_heads_rung, p);
    for (const char* tensor : {"K", "V"}) {
        CHECK(buffer(before, tensor).load.bytes == halves(p.kv_size() * group));
        CHECK(buffer(packed, tensor).load.bytes == halves(p.kv_size()));
    }
    CHECK(buffer(packed, "Q").load.bytes == halves(p.q_size()));
    CHECK(packed.grid.x == 2);
}

TEST_CASE("packed_heads multiplies by the warps that have rows, and by no others") {
    // 33 rows are those of two warps, and a warp has 32; 16 x 8 x 16 multiply-adds each, and P
    // times eight columns of ones
    const int64_t rows = GENERATE(1, 32, 33, 128);
    const Problem p = problem(1, rows, 1, 192, 64);
    CHECK(
        judged(packed_heads_rung, p).total.mma ==
        static_cast<uint64_t>(flash::ceil_div(rows, 32) * 32 * 192 * (2 * 64 + 8) / (16 * 8 * 16)));
}

TEST_CASE("split_kv reads each byte of K and V once, and stores and reads the parts of O once") {
    // a block for each of 4 SMs, of smaller heads two or four, or fewer
    struct Split {
        int64_t sequences, group, N_q, N_kv, d, splits;
    };
    const Split s = GENERATE(Split{1, 4, 1, 1000, 128, 4}, // 4 SMs, a block each: 96 KiB
                             Split{2, 4, 1, 1000, 128, 2}, // two tiles share them
                             Split{3, 4, 1, 1000, 128, 1}, // three leave no room
                             Split{1, 4, 1, 1000, 64, 8},  // two each: 48 KiB
                             // 1000 / 7 keys and 7 x 16 rows; with 8 it is less than 8 x 16 rows
                             Split{1, 8, 2, 1000, 64, 7}, Split{1, 8, 2, 1000, 32, 7},
                             Split{1, 1, 1, 100, 64, 2}, // 64 keys, and the rest
                             Split{1, 5, 3, 40, 64, 1});
    const Problem p = problem(s.sequences, s.group, s.N_q, s.N_kv, s.d);
    CAPTURE(s.sequences, s.group, s.N_q, s.N_kv, s.d);
    const KernelProfile kernel =
        judged(split_kv_rung, Case{Kind::normal, DType::bf16, p}, Options{.shared_kib = 99});
    CHECK(kernel.grid.x == static_cast<unsigned>(s.sequences * s.splits));
    CHECK(buffer(kernel, "K").load.bytes == halves(p.kv_size()));
    CHECK(buffer(kernel, "V").load.bytes == halves(p.kv_size()));
    CHECK(buffer(kernel, "Q").load.bytes == halves(p.q_size() * 4 * s.splits)); // by each warp
    CHECK(buffer(kernel, "O").store.bytes == halves(p.q_size()));
    CHECK(buffer(kernel, "LSE").store.bytes == floats(p.lse_size()));
    const int64_t parts = s.splits == 1 ? 0 : s.splits;
    const flash::simt::BufferTraffic traffic = buffer(kernel, "the parts");
    CHECK(traffic.store.bytes == floats((p.q_size() + p.lse_size()) * parts));
    // a thread reads four numbers of O, and the LSE of their row
    CHECK(traffic.load.bytes == floats((p.q_size() + p.q_size() / 4) * parts));
    // no bank conflict
    CHECK(kernel.total.shared_load.wavefronts == kernel.total.shared_load.ideal);
    CHECK(kernel.total.async_store.wavefronts == kernel.total.async_store.ideal);
    CHECK(kernel.total.shared_store.wavefronts == kernel.total.shared_store.ideal);
}

TEST_CASE("with more than 16 rows split_kv reads K and V for each tile of 16") {
    const Problem p = problem(3, 4, 20, 300, 64); // 80 rows: 5 tiles
    const KernelProfile kernel = judged(split_kv_rung, p);
    CHECK(kernel.grid.x == 3 * 5);
    CHECK(buffer(kernel, "K").load.bytes == 5 * halves(p.kv_size()));
}

TEST_CASE("split_kv is right, without a fault in any order, with rings that are filled again and "
          "parts that see nothing") {
    const Options order = GENERATE(
        Options{},
        Options{.schedule = {Schedule::shuffle, 1}, .cp_async = CpAsync::early, .detect = true},
        Options{.schedule = {Schedule::reverse}, .cp_async = CpAsync::late, .detect = true},
        Options{
            .schedule = {Schedule::one_warp_ahead, 1}, .cp_async = CpAsync::late, .detect = true});
    const Case c = GENERATE(
        Case{Kind::normal, DType::bf16, problem(1, 4, 1, 1500, 128)},
        Case{Kind::spread_24, DType::fp16, problem(1, 4, 1, 1500, 64)},
        Case{Kind::rises_2000, DType::bf16, problem(1, 8, 2, 1500, 64, true)},
        Case{Kind::rises_2000, DType::fp16, problem(1, 3, 4, 700, 128, true)},
        Case{Kind::towering_last, DType::fp16, problem(2, 6, 1, 1025, 32)},
        Case{Kind::logits_6e4, DType::bf16, problem(1, 4, 1, 800, 128)},
        // with a mask the first queries see no key, and some see keys of the first split alone
        Case{Kind::normal, DType::fp16, problem(1, 1, 16, 260, 64, true)},
        Case{Kind::normal, DType::bf16, problem(1, 1, 300, 270, 32, true)});
    CAPTURE(to_string(order.schedule), c.group(), c.name());
    judged(split_kv_rung, c, order);
}
