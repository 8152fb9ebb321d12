// The exponential that the CPU rungs share, in every lane of a vector and in the elements left
// over.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>

#include "common/cpu/matrix.hpp"

using flash::cpu::exponential;

namespace {

// longer than two vectors of any instruction set, and every remainder
constexpr int lengths_up_to = 40;

} // namespace

TEST_CASE("exponential: masked scores get no weight at all") {
    for (int n = 1; n <= lengths_up_to; ++n) {
        for (const float x : {-flash::cpu::infinity, -1e30f, -1e4f, -88.0f}) {
            const Eigen::ArrayXf y = exponential(Eigen::ArrayXf::Constant(n, x));
            INFO("exp(" << x << "), " << n << " elements");
            CHECK((y == 0).all());
        }
    }
}

TEST_CASE("exponential: NaN stays NaN, and too much becomes infinity") {
    for (int n = 1; n <= lengths_up_to; ++n) {
        const Eigen::ArrayXf nan = exponential(Eigen::ArrayXf::Constant(n, std::nanf("")));
        CHECK(nan.isNaN().all());
        const Eigen::ArrayXf huge = exponential(Eigen::ArrayXf::Constant(n, 89.0f));
        CHECK((huge == flash::cpu::infinity).all());
    }
}

TEST_CASE("exponential: accurate to 2^-21 between -87 and 88") {
    const Eigen::ArrayXf x = Eigen::ArrayXf::LinSpaced(100001, -87, 88);
    const Eigen::ArrayXf y = exponential(x);
    double worst = 0;
    for (Eigen::Index i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x(i)));
        worst = std::max(worst, std::abs(y(i) - exact) / exact);
    }
    CHECK(worst < 0x1p-21);
    CHECK(exponential(Eigen::ArrayXf::Zero(1))(0) == 1);
}
