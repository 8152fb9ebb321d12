// Comparing a sample of the rows: which rows it takes, and that the verdict on them is the one of
// the whole comparison.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "reference/check.hpp"
#include "reference/expectation.hpp"
#include "reference/sample.hpp"

namespace {

using namespace flash;
using reference::rows_left_out;

// 20 tiles of 128 rows a head, the last one of 68.
const Problem longer{
    .batch = 2, .heads = 3, .kv_heads = 1, .q_len = 2500, .kv_len = 150, .head_dim = 8};

int64_t compared(const Problem& p, int64_t rows) {
    const std::vector<bool> left_out = rows_left_out(p, rows);
    return left_out.empty() ? p.lse_size() : std::ranges::count(left_out, false);
}

struct Example {
    std::vector<float> q, k, v, o, lse;

    explicit Example(const Problem& p)
        : q(normal(p.q_size(), 1)), k(normal(p.kv_size(), 2)), v(normal(p.kv_size(), 3)) {
        const reference::Expectation exact = reference::expect(p, inputs());
        o.assign(exact.o.begin(), exact.o.end());
        lse.assign(exact.lse.begin(), exact.lse.end());
    }
    static std::vector<float> normal(int64_t size, uint64_t seed) {
        std::mt19937_64 generator(seed);
        std::normal_distribution<float> distribution;
        std::vector<float> values(static_cast<size_t>(size));
        std::ranges::generate(values, [&] { return distribution(generator); });
        return values;
    }
    Inputs inputs() const { return {DType::fp32, q, k, v}; }
    Verdict judge(const Problem& p, int64_t rows) const {
        return reference::check(p, inputs(), {o, lse}, {}, rows);
    }
};

} // namespace

TEST_CASE("a sample holds about as many rows of each head as asked for, the first and the last "
          "among them") {
    for (const int64_t rows : {1, 256, 500, 1000}) {
        const std::vector<bool> left_out = rows_left_out(longer, rows);
        REQUIRE(left_out.size() == static_cast<size_t>(longer.lse_size()));
        for (int64_t head = 0; head < longer.batch * longer.heads; ++head) {
            const auto first = left_out.begin() + head * longer.q_len;
            const int64_t kept = std::count(first, first + longer.q_len, false);
            CHECK(kept >= std::max<int64_t>(rows - 128, 1));
            CHECK(kept <= std::max<int64_t>(rows + 128, 3 * 128));
            CHECK(std::count(first + 128, first + 19 * 128, false) >= 128); // an inner tile
            CHECK_FALSE(first[0]);
            CHECK_FALSE(first[longer.q_len - 1]);
        }
    }
    // In inner tiles the heads differ.
    const std::vector<bool> left_out = rows_left_out(longer, 384);
    CHECK_FALSE(std::equal(left_out.begin(), left_out.begin() + longer.q_len,
                           left_out.begin() + longer.q_len));
}

TEST_CASE("a sample of all rows is no sample") {
    CHECK(rows_left_out(longer, longer.q_len).empty());
    CHECK(rows_left_out(longer, 1'000'000).empty());
    const Problem one_tile{.heads = 2, .q_len = 100, .kv_len = 100, .head_dim = 8};
    CHECK(rows_left_out(one_tile, 1).empty()); // a tile is compared whole
    const Problem two_tiles{.heads = 2, .q_len = 200, .kv_len = 100, .head_dim = 8};
    CHECK(compared(two_tiles, 1) == two_tiles.lse_size());
}

TEST_CASE("the verdict on a sample") {
    for (const bool causal : {false, true}) {
        Problem p = longer;
        p.causal = causal; // more queries than keys: the first tiles of each head see nothing
        Example example(p);
        const Verdict whole = example.judge(p, 0), sample = example.judge(p, 300);
        CHECK(whole.ok);
        CHECK(whole.rows == p.lse_size());
        CHECK(sample.ok);
        CHECK(sample.rows == compared(p, 300));
        CHECK(sample.o_bound <= whole.o_bound * (1 + 1e-9));
        CHECK(sample.o_bound > 1e-5);

        const std::vector<bool> left_out = rows_left_out(p, 300);
        // in the sample
        for (const size_t row : {size_t{0}, static_cast<size_t>(p.lse_size() - 1)}) {
            const float right = example.lse[row];
            example.lse[row] = 1;
            CHECK_FALSE(example.judge(p, 300).ok);
            example.lse[row] = right;
            example.o[row * 8 + 3] += 0.01f;
            CHECK_FALSE(example.judge(p, 300).ok);
            example.o[row * 8 + 3] -= 0.01f;
        }
        const auto outside =
            static_cast<size_t>(std::ranges::find(left_out, true) - left_out.begin());
        example.o[outside * 8] += 0.01f;
        CHECK(example.judge(p, 300).ok);
        CHECK_FALSE(example.judge(p, 0).ok);
    }
}
