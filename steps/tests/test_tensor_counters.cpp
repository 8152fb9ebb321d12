// What rungs 10 to 13 claim about their products and their shared memory, counted on the SIMT backend.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <random>

#include "common/cuda/device_buffer.hpp"
#include "common/cuda/sizes.hpp"
#include "common/simt/options.hpp"
#include "common/simt/profile.hpp"
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
};
constexpr Rung rung10{"10", step10::attention<Half>, 64};
constexpr Rung rung11{"11", step11::attention<Half>, 128};
constexpr Rung rung12{"12", step12::attention<Half>, 128};
constexpr Rung rung13{"13", step13::attention<Half>, 128};

constexpr int64_t Bc = 64;

DeviceBuffer<Half> random_buffer(int64_t size, const char* name, unsigned seed) {
    DeviceBuffer<Half> buffer(size, name);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size; ++i) {
        buffer.data()[i] = flash::from_float<Half>(normal(generator)); // the host can reach it here
    }
    return buffer;
}

Counters count(const Rung& rung, const Problem& p) {
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
    return kernels[0].total;
}

Problem problem(int64_t N_q, int64_t N_kv, int64_t d) {
    return {.heads = 2, .q_len = N_q, .kv_len = N_kv, .head_dim = d};
}

/// The mma of both products over whole tiles: 4096 FLOPs each.
uint64_t products(const Rung& rung, const Problem& p) {
    const int64_t rows = flash::ceil_div(p.q_len, rung.Br) * rung.Br;
    const int64_t keys = flash::ceil_div(p.kv_len, Bc) * Bc;
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
    const Problem p = problem(200, 130, d);
    CAPTURE(d);
    for (const Rung& rung : {rung10, rung11}) {
        CHECK(count(rung, p).mma == products(rung, p));
    }
    for (const Rung& rung : {rung12, rung13}) {
        CHECK(count(rung, p).mma == products(rung, p) + sums(rung, p));
    }
}

TEST_CASE("10 meets in the banks, 11 to 13 never") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(200, 130, d);
    CAPTURE(d);
    CHECK(ways(count(rung10, p).shared_load) > 3);
    for (const Rung& rung : {rung11, rung12, rung13}) {
        CAPTURE(rung.name);
        const Counters counted = count(rung, p);
        CHECK(counted.shared_load.wavefronts == counted.shared_load.ideal);
        CHECK(counted.shared_store.wavefronts == counted.shared_store.ideal);
        CHECK(counted.async_store.wavefronts == counted.async_store.ideal);
    }
}

TEST_CASE("an ldmatrix of K or V feeds four mma, and in 13 Q is fetched once if d <= 64") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(128, 256, d); // four tiles of keys
    CAPTURE(d);
    const uint64_t K_and_V = products(rung12, p) / 4;
    const auto Q_once = static_cast<uint64_t>(2 * 128 / 16 * d / 16); // heads x m16 tiles x k16 steps
    CHECK(count(rung11, p).ldmatrix == K_and_V + 4 * Q_once);
    CHECK(count(rung12, p).ldmatrix == K_and_V + 4 * Q_once);
    CHECK(count(rung13, p).ldmatrix == K_and_V + (d <= 64 ? 1 : 4) * Q_once);
}

TEST_CASE("12 and 13 read memory once a tile of queries, and meet once a tile of keys") {
    const auto d = GENERATE(int64_t{32}, 64, 128);
    const Problem p = problem(128, 256, d);
    CAPTURE(d);
    const auto K_and_V_bytes = static_cast<uint64_t>(p.heads * 2 * p.kv_size() * 2); // both heads read the same ones
    const auto Q_bytes = static_cast<uint64_t>(p.q_size() * 2);
    for (const Rung& rung : {rung12, rung13}) {
        const Counters counted = count(rung, p);
        CHECK(counted.global_load.bytes == Q_bytes + K_and_V_bytes);
        CHECK(counted.global_load.sectors == counted.global_load.ideal);
        CHECK(counted.global_store.sectors == counted.global_store.ideal);
        CHECK(counted.barriers == 2 * (4 + 1)); // heads x (tiles and the one ahead of O)
    }
}
