// What mma_sync to multistage claim about their products, their shared memory and their shuffles,
// counted on the SIMT backend.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <array>
#include <random>

#include "common/cuda/launch/device_buffer.hpp"
#include "common/cuda/launch/sizes.hpp"
#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"
#include "steps/21_mma_sync/mma_sync.hpp"
#include "steps/22_swizzle/swizzle.hpp"
#include "steps/23_warp_tiles/warp_tiles.hpp"
#include "steps/24_async_copy/async_copy.hpp"
#include "steps/25_block_order/block_order.hpp"
#include "steps/26_lean_softmax/lean_softmax.hpp"
#include "steps/27_lazy_maximum/lazy_maximum.hpp"
#include "steps/28_fixed_maximum/fixed_maximum.hpp"
#include "steps/28a_tile_barriers/tile_barriers.hpp"
#include "steps/29_multistage/multistage.hpp"

namespace {

using flash::DeviceBuffer;
using flash::Half;
using flash::Problem;
using flash::simt::Counters;
using Attention = void (*)(const Problem&, const Half*, const Half*, const Half*, Half*, float*);

// Where a rung stands among these: what one introduces, those after it have, too.
enum Place {
    at_mma_sync,
    at_swizzle,
    at_warp_tiles,
    at_async_copy,
    at_block_order,
    at_lean_softmax,
    at_lazy_maximum,
    at_fixed_maximum,
    at_tile_barriers,
    at_multistage
};

struct Rung {
    Place place;
    const char* name;
    Attention attention;
    int64_t Br;
};
constexpr Rung mma_sync_rung{at_mma_sync, "mma_sync", mma_sync::attention<Half>, 64};
constexpr Rung swizzle_rung{at_swizzle, "swizzle", swizzle::attention<Half>, 64};
constexpr Rung warp_tiles_rung{at_warp_tiles, "warp_tiles", warp_tiles::attention<Half>, 128};
constexpr Rung async_copy_rung{at_async_copy, "async_copy", async_copy::attention<Half>, 128};
constexpr Rung block_order_rung{at_block_order, "block_order", block_order::attention<Half>, 128};
constexpr Rung lean_softmax_rung{at_lean_softmax, "lean_softmax", lean_softmax::attention<Half>,
                                 128};
constexpr Rung lazy_maximum_rung{at_lazy_maximum, "lazy_maximum", lazy_maximum::attention<Half>,
                                 128};
constexpr Rung fixed_maximum_rung{at_fixed_maximum, "fixed_maximum", fixed_maximum::attention<Half>,
                                  128};
constexpr Rung tile_barriers_rung{at_tile_barriers, "tile_barriers", tile_barriers::attention<Half>,
                                  128};
constexpr Rung multistage_rung{at_multistage, "multistage", multistage::attention<Half>, 128};
constexpr std::array rungs = {
    mma_sync_rung,     swizzle_rung,      warp_tiles_rung,    async_copy_rung,    block_order_rung,
    lean_softmax_rung, lazy_maximum_rung, fixed_maximum_rung, tile_barriers_rung, multistage_rung};
constexpr int64_t Bc = 64;
constexpr int64_t warps = 4; // of a block

/// How far keys 10, 100 and 170, one in each of the first three tiles, tower above N(0, 1): by 50
/// is 72 in log2.
using Scores = std::array<float, 3>;
constexpr Scores tame{0, 0, 0}, one_towers{0, 50, 0}, two_tower{0, 50, 100}, first_towers{50, 0, 0},
    from_the_first{50, 100, 0};

DeviceBuffer<Half> random_buffer(int64_t size, const char* name, unsigned seed) {
    DeviceBuffer<Half> buffer(size, name);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size; ++i) {
        buffer.data()[i] = flash::from_float<Half>(normal(generator)); // the host can reach it here
    }
    return buffer;
}

/// The first element of every query is 16, that of a key its height.
void raise_scores(const Problem& p, Half* Q, Half* K, Scores scores) {
    if (scores == tame) {
        return;
    }
    for (int64_t i = 0; i < p.q_size(); i += p.head_dim) {
        Q[i] = flash::from_float<Half>(16);
    }
    for (int64_t j = 0; j < p.kv_len; ++j) {
        const float height = j == 10    ? scores[0]
                             : j == 100 ? scores[1]
                             : j == 170 ? scores[2]
                                        : 0.0f;
        for (int64_t head = 0; head < p.batch * p.kv_heads; ++head) {
            K[(head * p.kv_len + j) * p.head_dim] =
                flash::from_float<Half>(height / (16 * p.scale));
        }
    }
}

Counters count(const Rung& rung, const Problem& p, Scores scores = tame) {
    const DeviceBuffer<Half> Q = random_buffer(p.q_size(), "Q", 1);
    const DeviceBuffer<Half> K = random_buffer(p.kv_size(), "K", 2);
    const DeviceBuffer<Half> V = random_buffer(p.kv_size(), "V", 3);
    const DeviceBuffer<Half> O(p.q_size(), "O");
    const DeviceBuffer<float> LSE(p.lse_size(), "LSE");
    raise_scores(p, Q.data(), K.data(), scores);
    const flash::simt::Options before = flash::simt::options();
    flash::simt::options().count = true;
    flash::simt::clear_profile();
    rung.attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data());
    flash::simt::options() = before;
    const std::vector<flash::simt::KernelProfile> kernels = flash::simt::profile();
    REQUIRE(kernels.size() == 1);
    return kernels[0].total;
}

Problem problem(int64_t N_q, int64_t N_kv, int64_t d) {
    return {
        .heads = 2, .q_len = N_q, .kv_len = N_kv, .head_dim = d, .scale = flash::default_scale(d)};
}

uint64_t unsigned_of(int64_t n) { return static_cast<uint64_t>(n); }

int64_t blocks(const Rung& rung, const Problem& p) {
    return p.heads * flash::ceil_div(p.q_len, rung.Br);
}
int64_t tiles(const Problem& p) { return flash::ceil_div(p.kv_len, Bc); } // of keys, without a mask

/// Fragments of 16 x 16 elements in `rows` rows of Q, K or V.
int64_t fragments(int64_t rows, const Problem& p) { return rows / 16 * p.head_dim / 16; }

/// The mma of both products for one block and one tile of keys: 16 x 8 x 16 multiply-adds each.
int64_t products(const Rung& rung, const Problem& p) {
    return 2 * rung.Br * Bc * p.head_dim / (16 * 8 * 16);
}

/// And those of P times eight columns of ones.
int64_t sums(const Rung& rung) {
    return rung.place < at_lean_softmax ? 0 : rung.Br * Bc * 8 / (16 * 8 * 16);
}

uint64_t mma(const Rung& rung, const Problem& p) {
    return unsigned_of(blocks(rung, p) * tiles(p) * (products(rung, p) + sums(rung)));
}

} // namespace

TEST_CASE(
    "the number of mma follows from the tiles; from lean_softmax on the row sums are among them") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(200, 130, d);
    for (const Rung& rung : rungs) {
        CAPTURE(d, rung.name);
        CHECK(count(rung, p).mma == mma(rung, p));
    }
}

TEST_CASE("mma_sync meets in the banks, swizzle to multistage never") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(200, 130, d);
    const Counters conflicted = count(mma_sync_rung, p);
    CHECK(conflicted.shared_load.wavefronts > 3 * conflicted.shared_load.ideal);
    for (const Rung& rung : rungs) {
        if (rung.place > at_mma_sync) {
            CAPTURE(d, rung.name);
            const Counters counted = count(rung, p);
            CHECK(counted.shared_load.wavefronts == counted.shared_load.ideal);
            CHECK(counted.shared_store.wavefronts == counted.shared_store.ideal);
            CHECK(counted.async_store.wavefronts == counted.async_store.ideal);
            // nothing else is read: 512 bytes each
            CHECK(counted.shared_load.wavefronts == 4 * counted.ldmatrix);
        }
    }
}

TEST_CASE(
    "a fragment of K or V feeds two mma in swizzle, and four from warp_tiles on; Q is fetched "
    "once in swizzle, and then for each tile of keys") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(256, 192, d);
    CHECK(count(mma_sync_rung, p).ldmatrix == 0);
    for (const Rung& rung : rungs) {
        if (rung.place > at_mma_sync) {
            CAPTURE(d, rung.name);
            const int64_t K_and_V = products(rung, p) / (rung.place == at_swizzle ? 2 : 4);
            const int64_t Q = fragments(rung.Br, p) * (rung.place == at_swizzle ? 1 : tiles(p));
            CHECK(count(rung, p).ldmatrix ==
                  unsigned_of(blocks(rung, p) * (tiles(p) * K_and_V + Q)));
        }
    }
}

TEST_CASE("every rung reads Q once, and K and V once for each tile of Q; from async_copy on by "
          "cp.async") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(256, 192, d);
    for (const Rung& rung : rungs) {
        CAPTURE(d, rung.name);
        const Counters counted = count(rung, p);
        const int64_t bytes = blocks(rung, p) * (rung.Br + 2 * p.kv_len) * d * 2;
        CHECK(counted.global_load.bytes == unsigned_of(bytes));
        CHECK(counted.global_load.sectors == counted.global_load.ideal);
        const bool copies = rung.place >= at_async_copy;
        // a warp's: 16 bytes per lane
        CHECK(counted.cp_async == (copies ? unsigned_of(bytes / (32 * 16)) : 0));
        CHECK(counted.async_store.bytes == (copies ? unsigned_of(bytes) : 0));
        CHECK(counted.shared_store.bytes == (copies ? 0 : unsigned_of(bytes)));
    }
}

TEST_CASE("async_copy to fixed_maximum meet once per tile of keys, warp_tiles twice, and mma_sync "
          "and swizzle once more for Q; tile_barriers and multistage once per block") {
    const Problem p = problem(256, 192, 64);
    for (const Rung& rung : rungs) {
        CAPTURE(rung.name);
        const int64_t meetings = rung.place < at_warp_tiles      ? 1 + 2 * tiles(p)
                                 : rung.place == at_warp_tiles   ? 2 * tiles(p)
                                 : rung.place < at_tile_barriers ? tiles(p)
                                                                 : 1;
        CHECK(count(rung, p).barriers == unsigned_of(blocks(rung, p) * meetings));
    }
}

TEST_CASE("block_order does the same work as async_copy, also with a mask and with a last wave of "
          "fewer heads") {
    Problem p = problem(200, 200, 128);
    p.heads = 6; // waves of four heads
    p.causal = GENERATE(false, true);
    CAPTURE(p.causal);
    const Counters before = count(async_copy_rung, p), after = count(block_order_rung, p);
    CHECK(after.mma == before.mma);
    CHECK(after.ldmatrix == before.ldmatrix);
    CHECK(after.cp_async == before.cp_async);
    CHECK(after.barriers == before.barriers);
    CHECK(after.collectives == before.collectives);
    CHECK(after.global_load.bytes == before.global_load.bytes);
    CHECK(after.global_store.bytes == before.global_store.bytes);
}

TEST_CASE("from block_order on the last tile of Q, the longest with a mask, is the first block's; "
          "before it "
          "is the last block's") {
    Problem p = problem(256, 256, 64);
    p.heads = 1;
    p.causal = true;
    const int64_t row = p.head_dim;
    const DeviceBuffer<Half> Q =
        random_buffer(p.q_size() - row, "Q", 1); // whoever takes the last tile misses its last row
    const DeviceBuffer<Half> K = random_buffer(p.kv_size(), "K", 2),
                             V = random_buffer(p.kv_size(), "V", 3);
    const DeviceBuffer<Half> O(p.q_size(), "O");
    const DeviceBuffer<float> LSE(p.lse_size(), "LSE");
    const flash::simt::Options before = flash::simt::options();
    flash::simt::options().detect = true;
    for (const Rung& rung : rungs) {
        CAPTURE(rung.name);
        const int64_t longest = rung.place < at_block_order ? blocks(rung, p) - 1 : 0;
        try {
            rung.attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data());
            FAIL_CHECK("nobody missed the row");
        } catch (const flash::simt::Fault& fault) {
            CHECK(fault.kind == flash::simt::FaultKind::out_of_bounds);
            CHECK(fault.where.block.x == unsigned_of(longest));
        }
    }
    flash::simt::options() = before;
}

TEST_CASE("row sums need no shuffles from lean_softmax on, and maxima none after the first tile "
          "from lazy_maximum on") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(256, 256, d);
    // shuffles among the four lanes of a row, for all rows g of an m16 tile at once
    constexpr int64_t per_value = 2;
    for (const Rung& rung : rungs) {
        CAPTURE(d, rung.name);
        // of rows g and g + 8 of each m16 tile of a warp
        const int64_t values = 2 * rung.Br / 16 / warps;
        const int64_t maxima = values * per_value,
                      row_sums = rung.place < at_lean_softmax ? values * per_value : 0;
        // a vote each
        const int64_t of_tiles =
            rung.place < at_lazy_maximum ? tiles(p) * (maxima + row_sums) : maxima + (tiles(p) - 1);
        const int64_t for_ptxas = rung.place < at_multistage ? 0 : tiles(p); // a __syncwarp each
        const int64_t warp = of_tiles + for_ptxas;
        CHECK(count(rung, p).collectives == unsigned_of(blocks(rung, p) * warps * warp));
    }
}

TEST_CASE("lazy_maximum to multistage raise a maximum where scores tower: more shuffles") {
    const Problem p = problem(128, 256, 64);
    const auto maxima =
        unsigned_of(blocks(lazy_maximum_rung, p) * warps * 4 * 2); // 4 rows of a lane
    for (const Rung& rung :
         {lazy_maximum_rung, fixed_maximum_rung, tile_barriers_rung, multistage_rung}) {
        CAPTURE(rung.name);
        const uint64_t as_before = count(rung, p).collectives;
        CHECK(count(rung, p, first_towers).collectives == as_before);
        // a repaired tile is asked about before P V as well
        const uint64_t votes =
            rung.place < at_fixed_maximum ? 0 : unsigned_of(blocks(rung, p) * warps);
        CHECK(count(rung, p, one_towers).collectives == as_before + maxima + votes);
        CHECK(count(rung, p, two_tower).collectives == as_before + 2 * maxima + votes);
        CHECK(count(rung, p, from_the_first).collectives == as_before + maxima + votes);
    }
}

TEST_CASE("fixed_maximum to multistage compute a tile that did not fit three times, take one of "
          "them back, and then ask first") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(128, 256, d);
    CAPTURE(d);
    const auto twice_more =
        2 * unsigned_of(blocks(fixed_maximum_rung, p) *
                        (products(fixed_maximum_rung, p) + sums(fixed_maximum_rung)));
    for (const Scores scores : {tame, first_towers, one_towers, two_tower, from_the_first}) {
        CHECK(count(lazy_maximum_rung, p, scores).mma == mma(lazy_maximum_rung, p));
        const bool repaired = scores != tame && scores != first_towers; // the second tower: no more
        for (const Rung& rung : {fixed_maximum_rung, tile_barriers_rung, multistage_rung}) {
            CHECK(count(rung, p, scores).mma == mma(rung, p) + (repaired ? twice_more : 0));
        }
    }
}

TEST_CASE("under a mask a warp of multistage skips the tiles in which it sees no key; one of "
          "fixed_maximum or tile_barriers computes them") {
    const auto N_kv = GENERATE(int64_t{300}, 400, 150); // as many as queries, more, fewer
    Problem p = problem(300, N_kv, 64);
    p.causal = true;
    int64_t loaded = 0, seen = 0; // tiles of keys, by the warps of a head
    for (int64_t warp = 0; warp < 4 * flash::ceil_div(p.q_len, 128); ++warp) {
        // queries: the block's last, and the warp's
        const int64_t last = std::min(p.q_len, (warp / 4 + 1) * 128) - 1;
        const int64_t mine = 32 * warp + 31; // (which need not exist)
        const int64_t offset = p.kv_len - p.q_len + 1;
        const int64_t of_block = flash::ceil_div(std::max<int64_t>(0, last + offset), Bc);
        loaded += of_block;
        seen += std::min(of_block, flash::ceil_div(std::max<int64_t>(0, mine + offset), Bc));
    }
    CAPTURE(N_kv, loaded, seen);
    CHECK(seen < loaded);
    const int64_t of_warp = (products(fixed_maximum_rung, p) + sums(fixed_maximum_rung)) / 4;
    CHECK(count(fixed_maximum_rung, p).mma == unsigned_of(p.heads * loaded * of_warp));
    CHECK(count(tile_barriers_rung, p).mma == unsigned_of(p.heads * loaded * of_warp));
    CHECK(count(multistage_rung, p).mma == unsigned_of(p.heads * seen * of_warp));
}
