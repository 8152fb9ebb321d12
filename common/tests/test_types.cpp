// fp16, bf16 and e4m3 conversions: every value there is, against a definition in double and, where
// the processor has them, against its own instructions.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "common/types.hpp"

using namespace flash;

namespace {

/// A type's shape: mantissa bits without the leading one, smallest normal exponent, largest
/// exponent.
struct Format {
    int mantissa, lowest, highest;
};
constexpr Format half{10, -14, 15};
constexpr Format brain{7, -126, 127};

/// x rounded to the format: the nearest multiple of its unit in the last place, ties to the even
/// multiple.
/// The value as a double; infinity when it lies beyond the largest exponent.
double rounded(double x, const Format& format) {
    if (x == 0 || !std::isfinite(x)) {
        return x;
    }
    const int exponent = std::max(std::ilogb(x), format.lowest);
    // ties to even
    const double nearest = std::ldexp(std::nearbyint(std::ldexp(x, format.mantissa - exponent)),
                                      exponent - format.mantissa);
    return std::abs(nearest) >= std::ldexp(1.0, format.highest + 1)
               ? std::copysign(std::numeric_limits<double>::infinity(), x)
               : nearest;
}

/// The value of a bit pattern, from the definition of the format.
double value(uint16_t bits, const Format& format) {
    const int mantissa = bits & ((1 << format.mantissa) - 1);
    const int exponent = (bits & 0x7fff) >> format.mantissa;
    const int most = (1 << (15 - format.mantissa)) - 1;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == most) {
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    const int whole = exponent == 0 ? mantissa : mantissa | 1 << format.mantissa;
    return sign * std::ldexp(whole, std::max(exponent, 1) - 1 + format.lowest - format.mantissa);
}

bool same(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <class T> int64_t wrong_values(const Format& format) {
    int64_t wrong = 0;
    for (int bits = 0; bits < 65536; ++bits) {
        const T element{static_cast<uint16_t>(bits)};
        const float x = to_float(element);
        wrong += !same(static_cast<double>(x), value(element.bits, format));
        if (!std::isnan(x)) { // and back to the very same bits
            wrong += from_float<T>(x).bits != element.bits;
        }
    }
    return wrong;
}

/// Between each two neighbours of the type: their middle, and the floats directly below and above
/// it.
template <class T> int64_t wrong_near_ties(const Format& format) {
    int64_t wrong = 0;
    for (int bits = 0; bits < 65536; ++bits) {
        const double a = value(static_cast<uint16_t>(bits), format),
                     b = value(static_cast<uint16_t>(bits + 1), format);
        if (!std::isfinite(a) || (bits & 0x7fff) == 0x7fff) {
            continue;
        }
        // Beyond the largest finite value the next one would be a power of two.
        const double next =
            std::isfinite(b) ? b : std::copysign(std::ldexp(1.0, format.highest + 1), a);
        const auto middle = static_cast<float>((a + next) / 2); // exact: floats have more bits
        for (const float x :
             {std::nextafter(middle, 0.0f), middle,
              std::nextafter(middle,
                             std::copysign(std::numeric_limits<float>::infinity(), middle))}) {
            wrong += !same(static_cast<double>(to_float(from_float<T>(x))),
                           rounded(static_cast<double>(x), format));
        }
    }
    return wrong;
}

/// Leaves the test case, outside of any CHECK, where the loop over all floats would take minutes.
void skip_under_a_sanitizer() {
#ifdef __SANITIZE_ADDRESS__
    SKIP("4,294,967,296 floats take minutes under a sanitizer; the ties are tried there, too");
#endif
}

/// Converts all floats to T and counts those of which `is_wrong(the float's bits, the result's
/// bits)` says yes.
// converted in a loop of its own, which the compiler can vectorise
template <class T, class IsWrong> int64_t wrong_of_all_floats(IsWrong is_wrong) {
    constexpr uint32_t block = 1 << 16;
    int64_t wrong = 0;
#pragma omp parallel for schedule(static) reduction(+ : wrong)
    for (uint32_t high = 0; high < block; ++high) {
        std::vector<uint16_t> got(block);
        for (uint32_t low = 0; low < block; ++low) {
            got[low] = from_float<T>(std::bit_cast<float>(high << 16 | low)).bits;
        }
        for (uint32_t low = 0; low < block; ++low) {
            wrong += is_wrong(high << 16 | low, got[low]) ? 1 : 0;
        }
    }
    return wrong;
}

} // namespace

TEST_CASE("every fp16 and bf16 value converts to its float and back") {
    CHECK(wrong_values<Half>(half) == 0);
    CHECK(wrong_values<Bfloat16>(brain) == 0);
}

TEST_CASE("floats at and beside every tie round to nearest, ties to even") {
    CHECK(wrong_near_ties<Half>(half) == 0);
    CHECK(wrong_near_ties<Bfloat16>(brain) == 0);
}

TEST_CASE("every e4m3 value converts to its float and back, and floats round to the nearest") {
    const auto value_of = [](int bits) { // of a positive one
        const int mantissa = bits % 8, exponent = bits / 8;
        return std::ldexp(exponent == 0 ? mantissa : 8 + mantissa, std::max(exponent, 1) - 10);
    };
    for (int bits = 0; bits < 127; ++bits) {
        const auto x = static_cast<float>(value_of(bits));
        CHECK(to_float(E4m3{static_cast<uint8_t>(bits)}) == x);
        CHECK(from_float<E4m3>(x).bits == bits);
        CHECK(from_float<E4m3>(-x).bits == (bits | 0x80));
        const double next = bits < 126 ? value_of(bits + 1) : 480; // beyond the largest
        const auto middle = static_cast<float>((value_of(bits) + next) / 2);
        const int even = bits % 2 == 0 ? bits : bits + 1;
        CHECK(from_float<E4m3>(std::nextafter(middle, 0.0f)).bits == bits);
        CHECK(from_float<E4m3>(middle).bits == even);
        CHECK(from_float<E4m3>(std::nextafter(middle, 1e9f)).bits == bits + 1); // 127 is NaN
    }
    CHECK(std::isnan(to_float(E4m3{0x7f})));
    CHECK(std::isnan(to_float(E4m3{0xff})));
    for (const float x : {std::numeric_limits<float>::infinity(), 1e30f, std::nanf("")}) {
        CHECK(from_float<E4m3>(x).bits == 0x7f);
        CHECK(from_float<E4m3>(-x).bits == 0xff);
    }
}

TEST_CASE("every float rounds to the nearest bf16") {
    skip_under_a_sanitizer();
    // The two neighbours are the float cut off after 16 bits, and that plus one; the bits that were
    // cut off decide.
    CHECK(wrong_of_all_floats<Bfloat16>([](uint32_t bits, uint16_t got) {
              if ((bits & 0x7fffffff) > 0x7f800000) {
                  // NaN stays NaN, with its sign
                  return (got & 0x7fff) <= 0x7f80 || (got ^ bits >> 16) >> 15 != 0;
              }
              const uint32_t below = bits >> 16, rest = bits & 0xffff;
              const bool up = rest > 0x8000 || (rest == 0x8000 && below % 2 == 1);
              return got != below + (up ? 1 : 0);
          }) == 0);
}

TEST_CASE("every float rounds to fp16 as the processor rounds it") {
    skip_under_a_sanitizer();
#ifdef __F16C__
    CHECK(wrong_of_all_floats<Half>([](uint32_t bits, uint16_t got) {
              const __m128 x = _mm_set_ss(std::bit_cast<float>(bits));
              const int expected = _mm_extract_epi16(_mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), 0);
              return (bits & 0x7fffffff) > 0x7f800000
                         ? (got & 0x7fff) <= 0x7c00 || (got ^ expected) >> 15 != 0
                         : got != expected;
          }) == 0);
#else
    SKIP("compiled for a processor without F16C");
#endif
}

TEST_CASE("random floats round to the nearest fp16 by the definition in double") {
    int64_t wrong = 0;
    for (uint64_t i = 0; i < 4'000'000; ++i) {
        const auto x = std::bit_cast<float>(static_cast<uint32_t>(i * 0x9e3779b97f4a7c15 >> 32));
        wrong += !std::isnan(x) && !same(static_cast<double>(to_float(from_float<Half>(x))),
                                         rounded(static_cast<double>(x), half));
    }
    CHECK(wrong == 0);
}

TEST_CASE("round_to keeps fp32 and rounds the others") {
    const float third = 1.0f / 3;
    CHECK(round_to(DType::fp32, third) == third);
    CHECK(round_to(DType::fp16, third) == 0.333251953125f);
    CHECK(round_to(DType::bf16, third) == 0.333984375f);
    CHECK(round_to(DType::e4m3, third) == 0.34375f);
    CHECK(std::isinf(round_to(DType::fp16, 65520.0f)));
    CHECK(round_to(DType::fp16, 65519.0f) == 65504.0f);
}
