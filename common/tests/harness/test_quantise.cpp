// Tensors in e4m3: what becomes of the numbers, and the scales of their blocks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/error.hpp"
#include "common/harness/program/quantise.hpp"
#include "common/types.hpp"

using namespace flash;

namespace {

constexpr int64_t rows = 300, d = 2; // of a head: blocks of 128, 128 and 44 rows

/// Two heads; row i of each is 1 + i / 100, and its negative.
std::vector<float> two_heads() {
    std::vector<float> values;
    for (int64_t i = 0; i < 2 * rows; ++i) {
        const float x = 1 + static_cast<float>(i % rows) / 100;
        values.insert(values.end(), {x, -x});
    }
    return values;
}

} // namespace

TEST_CASE("each block of 128 rows of each head has a scale, and numbers are rounded in its unit") {
    const std::vector<float> exact = two_heads();
    std::vector<float> values = exact;
    const std::vector<float> scales = quantise(values, rows, d);
    REQUIRE(scales.size() == 6);
    const std::vector<float> units = in_units(values, scales, rows, d);
    for (size_t i = 0; i < values.size(); ++i) {
        const size_t row = i / d;
        const float scale = scales[row / rows * 3 + row % rows / 128];
        CHECK(round_to(DType::e4m3, units[i]) == units[i]); // an element of the type,
        CHECK(units[i] * scale == values[i]);               // and nothing was rounded on the way
        CHECK(std::abs(values[i] - exact[i]) <= std::abs(exact[i]) / 16);
    }
    for (size_t block = 0; block < 6; ++block) { // the largest number uses the whole range
        const size_t last = block / 3 * rows + std::min<size_t>((block % 3 + 1) * 128, rows) - 1;
        CHECK(units[last * d] >= 440);
        CHECK(units[last * d] <= 448);
    }
}

TEST_CASE("blocks of zeros, of the smallest numbers and of infinity have finite scales") {
    std::vector<float> values(3 * 128 * d);
    constexpr float tiny = 0x1p-149f, infinity = std::numeric_limits<float>::infinity();
    std::fill_n(values.begin() + 128 * d, 128 * d, tiny);
    std::fill_n(values.begin() + 256 * d, 128 * d, 3.0f);
    values[256 * d] = infinity;
    values[256 * d + 1] = std::nanf("");
    const std::vector<float> scales = quantise(values, 3 * 128, d);
    REQUIRE(scales.size() == 3);
    for (const float scale : scales) {
        CHECK(std::isfinite(scale));
        CHECK(scale > 0);
    }
    CHECK(scales[0] == 1);
    CHECK(values[0] == 0);
    CHECK(values[128 * d] == 0);
    CHECK(std::isnan(values[256 * d])); // e4m3 has no infinity
    CHECK(std::isnan(values[256 * d + 1]));
    CHECK(std::abs(values[256 * d + 2] - 3) <= 3.0f / 16);
}

TEST_CASE("a tensor in e4m3 with too few scales is refused") {
    const std::vector<float> values(2 * 128 * d), scales(1, 1.0f);
    CHECK_THROWS_AS(in_units(values, scales, 256, d), Error);
}
