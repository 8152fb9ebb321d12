#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>

#include "common/attention.hpp"

using namespace flash;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string refusal(const Problem& problem) {
    try {
        validate(problem);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("offsets of grouped heads") {
    const Problem p{.batch = 2, .heads = 6, .kv_heads = 2, .q_len = 5, .kv_len = 7, .head_dim = 3};
    CHECK(p.q_size() == 2 * 6 * 5 * 3);
    CHECK(p.kv_size() == 2 * 2 * 7 * 3);
    CHECK(p.lse_size() == 2 * 6 * 5);
    CHECK(p.kv_head(2) == 0);
    CHECK(p.kv_head(3) == 1);
    CHECK(p.q_offset(1, 4) == (6 + 4) * 5 * 3);
    CHECK(p.kv_offset(1, 4) == (2 + 1) * 7 * 3);
    CHECK(p.flops() == 4.0 * 2 * 6 * 5 * 7 * 3);
}

TEST_CASE("V and O may have a head dim of their own") {
    Problem p{.batch = 2, .heads = 6, .kv_heads = 2, .q_len = 5, .kv_len = 7, .head_dim = 3};
    CHECK((p.v_dim() == 3 && !p.two_head_dims()));
    CHECK((p.o_size() == p.q_size() && p.v_size() == p.kv_size()));
    p.head_dim_v = 4;
    CHECK((p.v_dim() == 4 && p.two_head_dims()));
    CHECK(p.q_size() == 2 * 6 * 5 * 3);
    CHECK(p.kv_size() == 2 * 2 * 7 * 3);
    CHECK(p.o_size() == 2 * 6 * 5 * 4);
    CHECK(p.v_size() == 2 * 2 * 7 * 4);
    CHECK(p.o_offset(1, 4) == (6 + 4) * 5 * 4);
    CHECK(p.v_offset(1, 4) == (2 + 1) * 7 * 4);
    CHECK(p.flops() == 2.0 * 2 * 6 * 5 * 7 * (3 + 4));
    p.head_dim_v = 3;
    CHECK(!p.two_head_dims());
}

TEST_CASE("the causal mask is aligned to the bottom right") {
    Problem p{.q_len = 3, .kv_len = 5, .causal = true};
    CHECK(p.visible_keys(0) == 3);
    CHECK(p.visible_keys(2) == 5);
    p.q_len = 5;
    p.kv_len = 3;
    CHECK(p.visible_keys(0) == 0);
    CHECK(p.visible_keys(1) == 0);
    CHECK(p.visible_keys(2) == 1);
    CHECK(p.visible_keys(4) == 3);
    p.causal = false;
    CHECK(p.visible_keys(0) == 3);
}

TEST_CASE("a window is W keys up to the query's own") {
    Problem p{.q_len = 3, .kv_len = 5, .causal = true, .window = 2};
    CHECK(p.first_key(0) == 1); // of keys 1 and 2
    CHECK(p.visible_keys(0) == 3);
    CHECK(p.first_key(2) == 3);
    CHECK(p.flops() == 4.0 * 64 * 6);
    p.window = std::numeric_limits<int64_t>::max();
    CHECK(p.first_key(2) == 0);
    CHECK(p.flops() == 4.0 * 64 * (3 + 4 + 5));
    p = {.q_len = 5, .kv_len = 3, .causal = true, .window = 1};
    CHECK(p.first_key(1) == p.visible_keys(1)); // nothing
    CHECK(p.first_key(2) == 0);
    CHECK(p.first_key(4) == 2);
    CHECK(p.flops() == 4.0 * 64 * 3);
}

TEST_CASE("problems that no rung may be asked to solve") {
    CHECK(refusal({}) == "accepted");
    CHECK_THAT(refusal({.q_len = 0}), ContainsSubstring("q-len must be at least 1, got 0"));
    CHECK_THAT(refusal({.heads = 3, .kv_heads = 2}),
               ContainsSubstring("must be a multiple of kv-heads (2)"));
    CHECK_THAT(refusal({.scale = 0}), ContainsSubstring("scale must be from 1.4e-45"));
    CHECK_THAT(refusal({.scale = std::numeric_limits<float>::quiet_NaN()}),
               ContainsSubstring("scale must be from 1.4e-45"));
    CHECK_THAT(refusal({.scale = std::numeric_limits<float>::infinity()}),
               ContainsSubstring("scale must be from 1.4e-45"));
    CHECK_THAT(refusal({.window = 3}), ContainsSubstring("got 3 without causal"));
    CHECK_THAT(refusal({.head_dim_v = -1}), ContainsSubstring("head-dim-v must be at least 1"));
    CHECK_THAT(refusal({.causal = true, .window = -3}), ContainsSubstring("window must be"));
    const int64_t third = int64_t{1} << 21; // three of them make 2^63
    CHECK_THAT(refusal({.batch = third, .q_len = third, .kv_len = 1, .head_dim = third}),
               ContainsSubstring("Q would"));
    CHECK_THAT(refusal({.batch = third, .kv_len = third, .head_dim = third}),
               ContainsSubstring("K would have"));
}
