#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <random>

#include "common/harness/program/random.hpp"

using namespace flash;

TEST_CASE("a seed gives the same bits everywhere") {
    NormalGenerator normal(0);
    uint64_t hash = 0xcbf29ce484222325; // FNV-1a over the first million numbers
    for (int i = 0; i < 1'000'000; ++i) {
        hash = (hash ^ std::bit_cast<uint32_t>(normal())) * 0x100000001b3;
    }
    CHECK(hash == 0x3b49cd9c3a17bd63);
    CHECK(NormalGenerator(1)() != NormalGenerator(2)());
}

TEST_CASE("the parts of a seed's sequence differ, and the first one is the seed's own") {
    CHECK(NormalGenerator(7, 0)() == NormalGenerator(7)());
    const float first[] = {NormalGenerator(7)(), NormalGenerator(7, 1)(), NormalGenerator(7, 2)(),
                           NormalGenerator(8, 1)(), NormalGenerator((uint64_t{1} << 32) + 7, 1)()};
    for (const float& a : first) {
        for (const float& b : first) {
            CHECK((&a == &b || a != b));
        }
    }
    CHECK(NormalGenerator(7, 1)() == first[1]);
}

TEST_CASE("the numbers are those of the polar method with the C library's logarithm") {
    NormalGenerator normal(42);
    std::mt19937_64 bits(42);
    for (int i = 0; i < 20'000; ++i) {
        double x = 0, y = 0, s = 0;
        do {
            x = std::ldexp(static_cast<double>(static_cast<int64_t>(bits()) >> 11), -52);
            y = std::ldexp(static_cast<double>(static_cast<int64_t>(bits()) >> 11), -52);
            s = x * x + y * y;
        } while (s >= 1 || s == 0);
        const double factor = std::sqrt(-2 * std::log(s) / s);
        REQUIRE(std::abs(static_cast<double>(normal()) - x * factor) <=
                1e-7 * std::abs(x * factor));
        REQUIRE(std::abs(static_cast<double>(normal()) - y * factor) <=
                1e-7 * std::abs(y * factor));
    }
}

TEST_CASE("the numbers are normal") {
    NormalGenerator normal(3);
    constexpr int count = 1'000'000;
    double sum = 0, squares = 0, fourth = 0, products = 0, last = 0;
    int beyond_three = 0;
    for (int i = 0; i < count; ++i) {
        const double x = static_cast<double>(normal());
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        products += x * last; // with the number before it
        last = x;
        beyond_three += std::abs(x) > 3 ? 1 : 0;
    }
    // Five standard deviations of each estimate; the seed is fixed, so these hold for good or not
    // at all.
    CHECK(std::abs(sum / count) < 5e-3);
    CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2.0 / count));
    CHECK(std::abs(fourth / count - 3) < 5 * std::sqrt(96.0 / count));
    CHECK(std::abs(products / count) < 5e-3);
    CHECK(std::abs(beyond_three - 2699.8) < 5 * std::sqrt(2699.8));
}
