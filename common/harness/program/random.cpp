#include "common/harness/program/random.hpp"

#include <cmath>

namespace flash {
namespace {

// Everything below consists of +, *, /, sqrt and fma, which IEEE 754 rounds in one way only. A
// product is never left to be added to something, because a compiler may fuse the two or not: such
// sums are written as fma.

/// Natural logarithm of a positive normal number, to about 1e-16.
double portable_log(double x) {
    int exponent = 0;
    double mantissa = std::frexp(x, &exponent); // x = mantissa * 2^exponent, mantissa in [1/2, 1)
    if (mantissa < 0.70710678118654752) {       // 1 / sqrt 2: now mantissa lies in [0.707, 1.414]
        mantissa *= 2;
        exponent -= 1;
    }
    // log(mantissa) = 2 atanh(t) = 2 (t + t^3/3 + t^5/5 + ...), |t| <= 0.172: nine terms suffice.
    const double t = (mantissa - 1) / (mantissa + 1);
    const double t2 = t * t;
    double series = 0;
    for (int k = 21; k >= 3; k -= 2) {
        series = std::fma(series, t2, 1.0 / k);
    }
    const double atanh_t = std::fma(t * t2, series, t);
    constexpr double ln2 = 0.69314718055994531;
    return std::fma(exponent, ln2, 2 * atanh_t);
}

} // namespace

NormalGenerator::NormalGenerator(uint64_t seed, uint32_t part) : bits_(seed) {
    if (part > 0) {
        std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), part};
        bits_.seed(words);
    }
}

/// Marsaglia's polar method: a point (x, y) uniform in the unit circle, at distance sqrt(s) from
/// its centre, gives two independent normal numbers, x and y times sqrt(-2 log(s) / s).
float NormalGenerator::operator()() {
    if (has_spare_) {
        has_spare_ = false;
        return spare_;
    }
    const auto uniform = [this] { // a multiple of 2^-52 in [-1, 1): exact
        return static_cast<double>(static_cast<int64_t>(bits_()) >> 11) * 0x1p-52;
    };
    double x = 0, y = 0, s = 0;
    do {
        x = uniform();
        y = uniform();
        s = std::fma(x, x, y * y);
    } while (s >= 1 || s == 0);
    const double factor = std::sqrt(-2 * portable_log(s) / s);
    spare_ = static_cast<float>(y * factor);
    has_spare_ = true;
    return static_cast<float>(x * factor);
}

} // namespace flash
