// What window and backward_window claim about their work: a block fetches the tiles of keys that
// its rows see, and a warpgroup multiplies those that its own rows see; a block of keys has a step
// for each tile of queries that sees one of them. Results cannot tell: they are right, too, where
// everything is fetched. Counted on the SIMT backend.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <numeric>

#include "common/cuda/launch/device_buffer.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"
#include "steps/35_window/window.hpp"
#include "steps/48_backward_window/backward_window.hpp"

namespace {

using flash::DeviceBuffer;
using flash::Half;
using flash::Problem;

template <class T> DeviceBuffer<T> zeros(int64_t size, const char* name) {
    DeviceBuffer<T> buffer(size, name);
    std::fill_n(buffer.data(), size, T{});
    return buffer;
}

/// Of the kernel that loads by TMA.
template <class Call> flash::simt::Counters counted(const Call& call) {
    const flash::simt::Options before = flash::simt::options();
    flash::simt::options().count = true;
    flash::simt::clear_profile();
    call();
    flash::simt::options() = before;
    for (const flash::simt::KernelProfile& kernel : flash::simt::profile()) {
        if (kernel.total.tma_load.requests > 0) {
            return kernel.total;
        }
    }
    FAIL("no kernel loads by TMA");
    return {};
}

flash::simt::Counters count(const Problem& p) {
    const auto Q = zeros<Half>(p.q_size(), "Q"), K = zeros<Half>(p.kv_size(), "K"),
               V = zeros<Half>(p.kv_size(), "V");
    const DeviceBuffer<Half> O(p.q_size(), "O");
    const DeviceBuffer<float> LSE(p.lse_size(), "LSE");
    const DeviceBuffer<char> workspace(window::workspace_bytes(p), "the workspace");
    return counted([&] {
        window::attention<Half>(p, Q.data(), K.data(), V.data(), nullptr, O.data(), LSE.data(),
                                workspace.data());
    });
}

flash::simt::Counters count_backward(const Problem& p) {
    const auto Q = zeros<Half>(p.q_size(), "Q"), K = zeros<Half>(p.kv_size(), "K"),
               V = zeros<Half>(p.kv_size(), "V"), O = zeros<Half>(p.q_size(), "O"),
               dO = zeros<Half>(p.q_size(), "dO");
    const auto LSE = zeros<float>(p.lse_size(), "LSE");
    const DeviceBuffer<Half> dQ(p.q_size(), "dQ"), dK(p.kv_size(), "dK"), dV(p.kv_size(), "dV");
    const DeviceBuffer<char> workspace(backward_window::workspace_bytes(p), "the workspace");
    return counted([&] {
        backward_window::attention_backward<Half>(p, Q.data(), K.data(), V.data(), nullptr,
                                                  O.data(), LSE.data(), dO.data(), dQ.data(),
                                                  dK.data(), dV.data(), nullptr, workspace.data());
    });
}

} // namespace

TEST_CASE("a block fetches what its rows see, and a warpgroup multiplies what its own rows see") {
    const auto d = GENERATE(int64_t{64}, 128, 256);
    const auto W = GENERATE(int64_t{0}, 1, 64, 65, 66, 128, 1000);
    const auto N_q = GENERATE(int64_t{40}, 600);
    Problem p{.q_len = N_q,
              .kv_len = 630,
              .head_dim = d,
              .scale = flash::default_scale(d),
              .causal = true,
              .window = W};
    const int64_t Br = d == 64 ? 256 : 128, Bc = d == 128 ? 128 : 64, rows = 64;
    int64_t fetched = 0, multiplied = 0, of_Q = 0;
    for (int64_t i0 = 0; i0 < N_q; i0 += Br) {
        of_Q += Br / rows;
        const int64_t end = p.visible_keys(std::min(i0 + Br, N_q) - 1);
        for (int64_t j0 = p.first_key(i0); j0 < end; j0 += Bc) {
            ++fetched;
            for (int64_t r0 = i0; r0 < std::min(i0 + Br, N_q); r0 += rows) {
                const int64_t last = std::min(r0 + rows, N_q) - 1;
                multiplied += p.first_key(r0) < j0 + Bc && p.visible_keys(last) > j0 ? 1 : 0;
            }
        }
    }
    const flash::simt::Counters found = count(p);
    CAPTURE(d, W, N_q);
    CHECK(found.tma_load.requests == static_cast<uint64_t>(of_Q + 2 * fetched)); // K and V
    // products of 16 columns of Q and K, and of 16 keys, as each of four warps counts them
    const auto products = static_cast<uint64_t>(multiplied * (d / 16 + Bc / 16) * 4);
    CHECK(std::accumulate(found.wgmma.begin(), found.wgmma.end(), uint64_t{0}) == products);
}

TEST_CASE("a block of keys has a step for each tile of queries that sees one of them") {
    const auto d = GENERATE(int64_t{64}, 128);
    const auto W = GENERATE(int64_t{0}, 1, 2, 64, 65, 66, 128, 1000);
    const auto N_q = GENERATE(int64_t{40}, 385, 630, 700);
    const bool causal = W > 0 || N_q == 630;
    const Problem p{.q_len = N_q,
                    .kv_len = 630,
                    .head_dim = d,
                    .scale = flash::default_scale(d),
                    .causal = causal,
                    .window = W};
    const int64_t Br = d == 64 ? 128 : 64, Bc = 128;
    int64_t steps = 0, blocks_with_steps = 0;
    for (int64_t j0 = 0; j0 < p.kv_len; j0 += Bc) {
        const int64_t before = steps;
        for (int64_t i0 = 0; i0 < N_q; i0 += Br) {
            bool sees = false;
            for (int64_t i = i0; i < std::min(i0 + Br, N_q); ++i) {
                sees = sees || (p.first_key(i) < std::min(j0 + Bc, p.kv_len) &&
                                p.visible_keys(i) > std::max(j0, p.first_key(i)));
            }
            steps += sees ? 1 : 0;
        }
        blocks_with_steps += steps > before ? 1 : 0;
    }
    const flash::simt::Counters found = count_backward(p);
    CAPTURE(d, W, N_q);
    CHECK(found.bulk_reduce.requests == static_cast<uint64_t>(steps)); // dQ
    // K and V by halves; Q, dO, and LSE with delta
    CHECK(found.tma_load.requests == static_cast<uint64_t>(4 * blocks_with_steps + 3 * steps));
}
