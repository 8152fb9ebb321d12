// What cuda_naive to double_buffer claim about their traffic, counted on the SIMT backend.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/simt/report/profile.hpp"
#include "steps/11_cuda_naive/cuda_naive.hpp"
#include "steps/12_flash_attention_1/flash_attention_1.hpp"
#include "steps/13_flash_attention_2/flash_attention_2.hpp"
#include "steps/14_micro_tiles/micro_tiles.hpp"
#include "steps/15_wide_loads/wide_loads.hpp"
#include "steps/16_double_buffer/double_buffer.hpp"
#include "steps/tests/column_order.hpp"
#include "steps/tests/count_kernels.hpp"

namespace {

using namespace flash::tests;
using flash::Forward;
using flash::Problem;
using flash::simt::KernelProfile;

Problem one_head(int64_t N_q, int64_t N_kv, int64_t d) {
    return {.q_len = N_q, .kv_len = N_kv, .head_dim = d};
}

constexpr uint64_t floats(int64_t count) { return static_cast<uint64_t>(count) * 4; } // bytes

/// The one kernel of flash_attention_1 to double_buffer.
KernelProfile only_kernel(Forward<float> attention, const Problem& p) {
    const std::vector<KernelProfile> kernels = count_kernels(attention, p);
    REQUIRE(kernels.size() == 1);
    return kernels[0];
}

void check_no_large_buffer(const KernelProfile& kernel, const Problem& p) {
    for (const flash::simt::BufferTraffic& found : kernel.buffers) {
        INFO(found.name);
        CHECK(found.bytes <= floats(std::max(p.q_size(), p.kv_size())));
    }
}

} // namespace

TEST_CASE("cuda_naive writes two N x N matrices and reads both back") {
    const int64_t N = GENERATE(64, 100, 257);
    const int64_t d = GENERATE(32, 64);
    const Problem p = one_head(N, N, d);
    const std::vector<KernelProfile> kernels = count_kernels(cuda_naive::attention, p);
    REQUIRE(kernels.size() == 3);
    // P is in its place
    const auto S_in = [&](size_t kernel) { return buffer(kernels[kernel], "S"); };
    CHECK(S_in(0).store.bytes == floats(N * N)); // S
    CHECK(S_in(1).store.bytes == floats(N * N)); // P
    CHECK(S_in(2).store.bytes == 0);
    // A row is read twice: for m and l, and, out of the cache, for P.
    CHECK(S_in(1).load.bytes == 2 * floats(N * N));
    // Lanes of a warp read the same element of P: one request of one sector an element and 32
    // columns of O.
    CHECK(S_in(2).load.requests == static_cast<uint64_t>(N * N * d / 32));
    CHECK(S_in(2).load.sectors == S_in(2).load.requests);
}

TEST_CASE("cuda_naive stores S and O in full sectors, and in column order one sector an element") {
    const Problem p = one_head(128, 128, 64);
    const std::vector<KernelProfile> rows = count_kernels(cuda_naive::attention, p);
    const std::vector<KernelProfile> columns = count_kernels(column_order::products, p);
    REQUIRE(rows.size() == 3);
    REQUIRE(columns.size() == 2);
    const auto sectors = [](const flash::simt::GlobalTraffic& traffic) {
        return static_cast<double>(traffic.sectors) / static_cast<double>(traffic.requests);
    };
    CHECK(sectors(rows[0].total.global_store) == 4); // of 32 bytes: 32 lanes x 4 bytes
    CHECK(sectors(columns[0].total.global_store) == 32);
    CHECK(sectors(rows[2].total.global_store) == 4);
    CHECK(sectors(columns[1].total.global_store) == 32);
    CHECK(sectors(buffer(rows[0], "K").load) == 8);
    CHECK(sectors(buffer(rows[0], "Q").load) == 4);
    CHECK(sectors(buffer(columns[0], "Q").load) == 32);
    CHECK(sectors(buffer(columns[0], "K").load) == 1);
    CHECK(sectors(buffer(rows[2], "V").load) == 4);
    CHECK(sectors(buffer(columns[1], "S").load) == 32);
}

TEST_CASE("flash_attention_1 keeps S and P on the chip, and takes O through memory once for each "
          "tile of K") {
    const int64_t N = GENERATE(64, 100, 192, 257);
    const Problem p = one_head(N, N, 64);
    const KernelProfile kernel = only_kernel(flash_attention_1::attention, p);
    check_no_large_buffer(kernel, p);
    const int64_t Tc = (N + 63) / 64; // Bc = 64
    CHECK(buffer(kernel, "O").load.bytes == floats(Tc * p.q_size()));
    // and once the zeros before
    CHECK(buffer(kernel, "O").store.bytes == floats((Tc + 1) * p.q_size()));
    CHECK(buffer(kernel, "Q").load.bytes == floats(Tc * p.q_size()));
    CHECK(buffer(kernel, "K").load.bytes == floats(p.kv_size()));
    CHECK(buffer(kernel, "V").load.bytes == floats(p.kv_size()));
}

TEST_CASE("flash_attention_2 to double_buffer write O and LSE once, and read K and V for each tile "
          "of Q") {
    struct Claim {
        Forward<float> attention;
        int64_t Br, Bc;   // of d = 64
        bool whole_tiles; // rows beyond the last are asked for, too: they repeat it
    };
    const Claim claim = GENERATE(Claim{flash_attention_2::attention, 64, 32, false},
                                 Claim{micro_tiles::attention, 128, 64, false},
                                 Claim{wide_loads::attention, 128, 64, true},
                                 Claim{double_buffer::attention, 128, 64, true});
    const int64_t N = GENERATE(1, 64, 100, 192, 257);
    const Problem p = one_head(N, N + 31, 64);
    const KernelProfile kernel = only_kernel(claim.attention, p);
    check_no_large_buffer(kernel, p);
    const int64_t Tr = (N + claim.Br - 1) / claim.Br;
    const int64_t Tc = (N + 31 + claim.Bc - 1) / claim.Bc;
    const int64_t Q_rows = claim.whole_tiles ? Tr * claim.Br : N;
    const int64_t K_rows = claim.whole_tiles ? Tc * claim.Bc : N + 31;
    CHECK(kernel.grid.x == static_cast<unsigned>(Tr));
    CHECK(buffer(kernel, "O").store.bytes == floats(p.q_size()));
    CHECK(buffer(kernel, "O").load.bytes == 0);
    CHECK(buffer(kernel, "LSE").store.bytes == floats(p.lse_size()));
    CHECK(buffer(kernel, "Q").load.bytes == floats(Q_rows * 64));
    CHECK(buffer(kernel, "K").load.bytes == floats(Tr * K_rows * 64));
    CHECK(buffer(kernel, "V").load.bytes == floats(Tr * K_rows * 64));
    CHECK(buffer(kernel, "l").bytes + buffer(kernel, "m").bytes + buffer(kernel, "S").bytes == 0);
}

TEST_CASE("with a causal mask flash_attention_2 to double_buffer leave out the tiles that no row "
          "sees") {
    const Problem full = one_head(512, 512, 32);
    Problem causal = full;
    causal.causal = true;
    const KernelProfile all = only_kernel(flash_attention_2::attention, full);
    const KernelProfile some = only_kernel(flash_attention_2::attention, causal);
    // Tiles of 64 x 32: tile row i of 8 sees 2 i + 2 of 16 tiles of K, 72 of 128 in all.
    CHECK(buffer(all, "K").load.bytes == 128 * floats(32 * 32));
    CHECK(buffer(some, "K").load.bytes == 72 * floats(32 * 32));
    const auto larger_tiles = GENERATE(as<Forward<float>>{}, micro_tiles::attention,
                                       wide_loads::attention, double_buffer::attention);
    CHECK(buffer(only_kernel(larger_tiles, causal), "K").load.bytes ==
          20 * floats(64 * 32)); // 128 x 64: row i of 4 sees 2 i + 2 of 8
}

TEST_CASE("micro_tiles reads shared memory at least seven times less than flash_attention_2") {
    const int64_t N = GENERATE(128, 256, 384);
    const Problem p = one_head(N, N, 64);
    const auto loaded = [&](Forward<float> attention) {
        return only_kernel(attention, p).total.shared_load.bytes;
    };
    // Bytes that the lanes read for each multiply-add of Q K^T and of P V, which are N^2 d each.
    const auto N2d = static_cast<uint64_t>(N * N * 64);
    // q and k; v, and p for two columns of O, or for each
    CHECK(loaded(flash_attention_2::attention) >= N2d * 8 + N2d * 6);
    CHECK(loaded(micro_tiles::attention) == N2d * 1 + N2d * 1); // (8 + 8) numbers for 8 x 8
}

TEST_CASE("wide_loads makes a quarter of the requests of micro_tiles, for the same bytes") {
    const int64_t d = GENERATE(32, 64, 128);
    const Problem p = one_head(256, 256, d); // whole tiles
    const auto four = only_kernel(micro_tiles::attention, p).total;
    const auto sixteen = only_kernel(wide_loads::attention, p).total;
    CHECK(four.shared_load.requests == 4 * sixteen.shared_load.requests);
    CHECK(four.shared_store.requests == 4 * sixteen.shared_store.requests);
    CHECK(four.global_load.requests == 4 * sixteen.global_load.requests);
    CHECK(four.shared_load.bytes == sixteen.shared_load.bytes);
    CHECK(four.shared_store.bytes == sixteen.shared_store.bytes);
    CHECK(four.global_load.bytes == sixteen.global_load.bytes);
    CHECK(four.global_load.sectors == sixteen.global_load.sectors);
    CHECK(four.barriers == sixteen.barriers);
}

TEST_CASE(
    "double_buffer has 128 queries to a tile, at d = 128 where a block may have 227 KiB of shared "
    "memory, else 64") {
    struct Tile {
        int shared_kib; // of a block, on an RTX 3090 or 4090, an A100, an H100
        int64_t d, Br, Bc, threads, bytes;
    };
    // d rows of Br + 4 queries; two slices of 16 * threads numbers of K or V, K's Bc numbers longer
    // by 4; Bc rows of P for each warp, of 8 queries for each of its LR lanes, and 8 more.
    constexpr int64_t four_64 = 4 * (64 * 132 + 2 * 32 * 68 + 4 * 64 * 40);
    constexpr int64_t four_128 = 4 * (128 * 68 + 2 * 16 * 132 + 4 * 128 * 24);
    constexpr int64_t eight_128 = 4 * (128 * 132 + 2 * 32 * 132 + 8 * 128 * 24);
    const Tile tile =
        GENERATE(Tile{99, 64, 128, 64, 128, four_64}, Tile{227, 64, 128, 64, 128, four_64},
                 Tile{99, 128, 64, 128, 128, four_128}, Tile{163, 128, 64, 128, 128, four_128},
                 Tile{227, 128, 128, 128, 256, eight_128});
    CAPTURE(tile.shared_kib, tile.d);
    const SharedLimit limit(tile.shared_kib);
    const int64_t N = 256; // whole tiles
    const KernelProfile kernel = only_kernel(double_buffer::attention, one_head(N, N, tile.d));
    CHECK(kernel.grid.x == static_cast<unsigned>(N / tile.Br));
    CHECK(kernel.block.x == static_cast<unsigned>(tile.threads));
    CHECK(kernel.shared_bytes == static_cast<size_t>(tile.bytes));
    CHECK(buffer(kernel, "Q").load.bytes == floats(N * tile.d));
    CHECK(buffer(kernel, "K").load.bytes == N / tile.Br * floats(N * tile.d));
    CHECK(buffer(kernel, "V").load.bytes == N / tile.Br * floats(N * tile.d));
    // A barrier before each slice: of K there are d / slice, of V Bc / slice, and a slice has 16 *
    // threads numbers.
    const int64_t slice = 16 * tile.threads / tile.Bc;
    const int64_t pairs = N / tile.Br * (N / tile.Bc);
    CHECK(kernel.total.barriers == static_cast<uint64_t>(pairs * (tile.d + tile.Bc) / slice));
}

TEST_CASE("micro-tiles are 8 x 8, but of O 8 x 4 at d = 32, and of S 8 x 4 at d = 128 before "
          "double_buffer") {
    struct Claim {
        Forward<float> attention;
        bool slices; // of K are in shared memory, not whole tiles
    };
    const Claim claim =
        GENERATE(Claim{micro_tiles::attention, false}, Claim{wide_loads::attention, false},
                 Claim{double_buffer::attention, true});
    const SharedLimit limit(GENERATE(163, 227));
    const int64_t d = GENERATE(32, 64, 128);
    const int64_t N = 256; // whole tiles
    const Problem p = one_head(N, N, d);
    const auto multiply_adds = static_cast<uint64_t>(N * N * d); // of each product
    // (8 + 8) numbers of 4 bytes for 8 * 8 multiply-adds, or (8 + 4) for 8 * 4
    const uint64_t square = multiply_adds;
    const uint64_t half = multiply_adds * 3 / 2;
    const uint64_t QK_bytes = d == 128 && !claim.slices ? half : square;
    const uint64_t PV_bytes = d == 32 ? half : square;
    CHECK(only_kernel(claim.attention, p).total.shared_load.bytes == QK_bytes + PV_bytes);
}

TEST_CASE("no line of cuda_naive to double_buffer has conflicts between banks") {
    const auto attention =
        GENERATE(as<Forward<float>>{}, cuda_naive::attention, flash_attention_1::attention,
                 flash_attention_2::attention, micro_tiles::attention, wide_loads::attention,
                 double_buffer::attention);
    const SharedLimit limit(GENERATE(163, 227));
    const int64_t d = GENERATE(32, 64, 128);
    for (const KernelProfile& kernel : count_kernels(attention, one_head(150, 150, d))) {
        for (const auto& [place, counters] : kernel.lines) {
            INFO(kernel.name << ", line " << place.line);
            CHECK_FALSE(flash::simt::findings(counters).conflicted); // more than 1.1-way
        }
    }
}
