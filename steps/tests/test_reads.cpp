// How often each rung reads K and V: counted where tiles are handed out.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>

#include "common/cpu/tiles.hpp"
#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"
#include "steps/tests/attention_data.hpp"

namespace {

using namespace flash::tests;
using flash::Problem;

constexpr int64_t Br = one_pass_softmax::Br, Bc = one_pass_softmax::Bc;

struct Claim {
    size_t rung;      // index in cpu_rungs()
    int64_t K_passes; // for each tile of Q
    int64_t V_passes;
};

/// Bytes of K (or of V) that one pass hands out: for each tile of Q, whole tiles up to the last key
/// that it sees.
int64_t bytes_of_one_pass(const Problem& p) {
    int64_t keys = 0;
    for (int64_t i0 = 0; i0 < p.q_len; i0 += Br) {
        const int64_t visible = p.visible_keys(std::min(i0 + Br, p.q_len) - 1);
        keys += std::min((visible + Bc - 1) / Bc * Bc, p.kv_len);
    }
    return p.batch * p.heads * keys * p.head_dim * 4;
}

void check_reads(const Problem& p, const Claim& claim) {
    const NamedRung& rung = cpu_rungs()[claim.rung];
    INFO(rung.name << ", N_q = " << p.q_len << ", N_kv = " << p.kv_len
                   << (p.causal ? ", causal" : ", full"));
    AttentionData data = random_attention(p, 1);
    auto& counts = flash::cpu::bytes_read;
    counts.Q = counts.K = counts.V = 0;
    data.run(rung.attention);
    CHECK(counts.Q == p.q_size() * 4);
    CHECK(counts.K == claim.K_passes * bytes_of_one_pass(p));
    CHECK(counts.V == claim.V_passes * bytes_of_one_pass(p));
}

} // namespace

TEST_CASE("three_pass_softmax reads K three times and V once, two_pass_softmax K twice, "
          "one_pass_softmax K once, for each tile of Q") {
    const Claim claim = GENERATE(Claim{2, 3, 1}, Claim{3, 2, 1}, Claim{4, 1, 1});
    for (const bool causal : {false, true}) {
        for (const int64_t N : {1, 100, 128, 129, 1000, 1024}) {
            check_reads(
                {.batch = 2, .heads = 2, .kv_heads = 1, .q_len = N, .kv_len = N, .causal = causal},
                claim);
        }
        check_reads({.heads = 2,
                     .kv_heads = 2,
                     .q_len = 300,
                     .kv_len = 700,
                     .head_dim = 33,
                     .causal = causal},
                    claim);
        check_reads({.heads = 2,
                     .kv_heads = 2,
                     .q_len = 700,
                     .kv_len = 300,
                     .head_dim = 33,
                     .causal = causal},
                    claim);
    }
}

TEST_CASE("with one tile of Q, one_pass_softmax reads K and V exactly once") {
    const Problem p{.q_len = Br, .kv_len = 1000};
    AttentionData data = random_attention(p, 1);
    auto& counts = flash::cpu::bytes_read;
    counts.K = counts.V = 0;
    data.run(one_pass_softmax::attention);
    CHECK(counts.K == p.kv_size() * 4);
    CHECK(counts.V == p.kv_size() * 4);
}
