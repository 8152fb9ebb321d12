// CUDA's index types.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
        : x(width), y(height), z(depth) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

namespace flash::simt {

constexpr unsigned long long volume(dim3 size) {
    return static_cast<unsigned long long>(size.x) * size.y * size.z;
}

/// The element that `number` counts to, x fastest.
constexpr uint3 element(dim3 size, unsigned long long number) {
    return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
            static_cast<unsigned>(number / size.x / size.y)};
}

} // namespace flash::simt
