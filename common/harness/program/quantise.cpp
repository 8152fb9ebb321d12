#include "common/harness/program/quantise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/attention.hpp"
#include "common/error.hpp"
#include "common/types.hpp"

namespace flash {
namespace {

/// use(scale's index, first number, end) for each block of rows of each head.
template <class Use> void for_each_block(size_t size, int64_t rows, int64_t d, Use use) {
    const auto head = static_cast<size_t>(rows * d), block = static_cast<size_t>(scale_block * d);
    size_t number = 0;
    for (size_t first = 0; first < size; first += head) {
        for (size_t at = 0; at < head; at += block) {
            use(number++, first + at, first + std::min(at + block, head));
        }
    }
}

float scale_for(float largest) {
    if (largest == 0) {
        return 1;
    }
    // 448 times a normal number, and so are all products; below it, the smallest are lost
    const float wanted = std::max(largest / largest_number(DType::e4m3), 0x1p-117f);
    const uint32_t up = std::bit_cast<uint32_t>(wanted) + 0xffffu;
    return std::bit_cast<float>(up & 0xffff0000u);
}

} // namespace

std::vector<float> quantise(std::vector<float>& values, int64_t rows, int64_t d) {
    std::vector<float> scales;
    for_each_block(values.size(), rows, d, [&](size_t, size_t first, size_t end) {
        float largest = 0;
        for (size_t i = first; i < end; ++i) {
            const float size = std::abs(values[i]);
            largest = std::isfinite(size) ? std::max(largest, size) : largest;
        }
        const float scale = scales.emplace_back(scale_for(largest));
        for (size_t i = first; i < end; ++i) {
            values[i] = round_to(DType::e4m3, values[i] / scale) * scale;
        }
    });
    return scales;
}

std::vector<float> in_units(std::span<const float> values, std::span<const float> scales,
                            int64_t rows, int64_t d) {
    std::vector<float> units(values.begin(), values.end());
    for_each_block(values.size(), rows, d, [&](size_t number, size_t first, size_t end) {
        if (number >= scales.size()) {
            throw Error("a tensor in e4m3 has " + std::to_string(scales.size()) +
                        " scales, too few for its blocks of 128 rows");
        }
        for (size_t i = first; i < end; ++i) {
            units[i] /= scales[number];
        }
    });
    return units;
}

} // namespace flash
