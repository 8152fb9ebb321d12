// What rungs 10 to 13 claim about their products and their shared memory, counted on the SIMT backend.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <random>

#include "common/cuda/device_buffer.hpp"
#include "common/cuda/sizes.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"
#include "steps/10_mma_sync/mma_sync.hpp"
#include "steps/11_swizzle/swizzle.hpp"
#include "steps/12_async_pipeline/async_pipeline.hpp"
#include "steps/13_fixed_maximum/fixed_maximum.hpp"

namespace {

using flash::DeviceBuffer;
using flash::Half;
using flash::Problem;
using flash::simt::Counters;
using Attention = void (*)(const Problem&, const Half*, const Half*, const Half*, Half*, float*);

struct Rung {
    const char* name;
    Attention attention;
    int64_t Br;
    bool chooses; // the size of its tiles of keys
};
constexpr Rung rung10{"10", step10::attention<Half>, 64, false};
constexpr Rung rung11{"11", step11::attention<Half>, 128, false};
constexpr Rung rung12{"12", step12::attention<Half>, 128, false};
constexpr Rung rung13{"13", step13::attention<Half>, 128, true};

/// Keys of a tile. With 164 KiB an SM, as an A100 has, two blocks of rung 13 fit if tiles have 32 keys at d = 128.
int64_t Bc(const Rung& rung, int64_t d) {
    return rung.chooses && d == 128 && flash::simt::options().shared_kib == 163 ? 32 : 64;
}

DeviceBuffer<Half> random_buffer(int64_t size, const char* name, unsigned seed) {
    DeviceBuffer<Half> buffer(size, name);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size; ++i) {
        buffer.data()[i] = flash::from_float<Half>(normal(generator)); // the host can reach it here
    }
    return buffer;
}

flash::simt::KernelProfile run(const Rung& rung, const Problem& p) {
    const DeviceBuffer<Half> Q = random_buffer(p.q_size(), "Q", 1);
    const DeviceBuffer<Half> K = random_buffer(p.kv_size(), "K", 2);
    const DeviceBuffer<Half> V = random_buffer(p.kv_size(), "V", 3);
    const DeviceBuffer<Half> O(p.q_size(), "O");
    const DeviceBuffer<float> LSE(p.lse_size(), "LSE");
    const flash::simt::Options before = flash::simt::options();
    flash::simt::options().count = true;
    flash::simt::clear_profile();
    rung.attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data());
    flash::simt::options() = before;
    const std::vector<flash::simt::KernelProfile> kernels = flash::simt::profile();
    REQUIRE(kernels.size() == 1);
    return kernels[0];
}

Counters count(const Rung& rung, const Problem& p) { return run(rung, p).total; }

Problem problem(int64_t N_q, int64_t N_kv, int64_t d) {
    return {.heads = 2, .q_len = N_q, .kv_len = N_kv, .head_dim = d};
}

/// The mma of both products over whole tiles: 4096 FLOPs each.
uint64_t products(const Rung& rung, const Problem& p) {
    const int64_t rows = flash::ceil_div(p.q_len, rung.Br) * rung.Br;
    const int64_t keys = flash::ceil_div(p.kv_len, Bc(rung, p.head_dim)) * Bc(rung, p.head_dim);
    return static_cast<uint64_t>(4 * p.heads * rows * keys * p.head_dim / 4096);
}

/// Those of the row sum: eight columns of ones.
uint64_t sums(const Rung& rung, const Problem& p) { return products(rung, p) * 4 / static_cast<uint64_t>(p.head_dim); }

/// How many times as many wavefronts as without conflicts.
double ways(const flash::simt::SharedTraffic& traffic) {
    return static_cast<double>(traffic.wavefronts) / static_cast<double>(traffic.ideal);
}

} // namespace

TEST_CASE("the number of mma follows from the tiles") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const SharedLimit limit(GENERATE(163, 227));
    const Problem p = problem(200, 130, d);
    CAPTURE(d, flash::simt::options().shared_kib);
    for (const Rung& rung : {rung10, rung11}) {
        CHECK(count(rung, p).mma == products(rung, p));
    }
    for (const Rung& rung : {rung12, rung13}) {
        CHECK(count(rung, p).mma == products(rung, p) + sums(rung, p));
    }
}

TEST_CASE("10 meets in the banks, 11 to 13 never") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const SharedLimit limit(GENERATE(163, 227));
    const Problem p = problem(200, 130, d);
    CAPTURE(d, flash::simt::options().shared_kib);
    CHECK(ways(count(rung10, p).shared_load) > 3);
    for (const Rung& rung : {rung11, rung12, rung13}) {
        CAPTURE(rung.name);
        const Counters counted = count(rung, p);
        CHECK(counted.shared_load.wavefronts == counted.shared_load.ideal);
        CHECK(counted.shared_store.wavefronts == counted.shared_store.ideal);
        CHECK(counted.async_store.wavefronts == counted.async_store.ideal);
    }
}

TEST_CASE("13 has the tiles of which two blocks fit an SM, and large ones where only one does") {
    struct Tile {
        int shared_kib; // of a block, on an RTX 3090 or 4090, an A100, an H100
        int64_t d, Bc;
    };
    const auto tile =
        GENERATE(Tile{99, 32, 64}, Tile{99, 64, 64}, Tile{99, 128, 64}, Tile{163, 32, 64}, Tile{163, 64, 64},
                 Tile{163, 128, 32}, Tile{227, 32, 64}, Tile{227, 64, 64}, Tile{227, 128, 64});
    CAPTURE(tile.shared_kib, tile.d);
    const SharedLimit limit(tile.shared_kib);
    CHECK(run(rung13, problem(1, 1, tile.d)).shared_bytes == static_cast<size_t>((128 + 4 * tile.Bc) * tile.d * 2));
}

TEST_CASE("an ldmatrix of K or V feeds four mma, and in 13 Q is fetched once if d <= 64") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const SharedLimit limit(GENERATE(99, 163, 227));
    const Problem p = problem(128, 256, d);
    CAPTURE(d, flash::simt::options().shared_kib);
    const uint64_t K_and_V = products(rung12, p) / 4;
    const auto Q_once = static_cast<uint64_t>(2 * 128 / 16 * d / 16); // heads x m16 tiles x k16 steps
    const auto times = [&](const Rung& rung) { return static_cast<uint64_t>(p.kv_len / Bc(rung, d)); };
    CHECK(count(rung11, p).ldmatrix == K_and_V + times(rung11) * Q_once);
    CHECK(count(rung12, p).ldmatrix == K_and_V + times(rung12) * Q_once);
    CHECK(count(rung13, p).ldmatrix == K_and_V + (d <= 64 ? 1 : times(rung13)) * Q_once);
}

TEST_CASE("12 and 13 read memory once a tile of queries, and meet once a tile of keys") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const SharedLimit limit(GENERATE(99, 163, 227));
    const Problem p = problem(128, 256, d);
    CAPTURE(d, flash::simt::options().shared_kib);
    const auto K_and_V_bytes = static_cast<uint64_t>(p.heads * 2 * p.kv_size() * 2); // both heads read the same ones
    const auto Q_bytes = static_cast<uint64_t>(p.q_size() * 2);
    for (const Rung& rung : {rung12, rung13}) {
        const Counters counted = count(rung, p);
        CHECK(counted.global_load.bytes == Q_bytes + K_and_V_bytes);
        CHECK(counted.global_load.sectors == counted.global_load.ideal);
        CHECK(counted.global_store.sectors == counted.global_store.ideal);
        const auto tiles = static_cast<uint64_t>(p.kv_len / Bc(rung, d));
        CHECK(counted.barriers == 2 * (tiles + 1)); // heads x (tiles and the one ahead of O)
    }
}
