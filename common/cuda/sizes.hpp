// Arithmetic on sizes that every launcher does.
#pragma once

#include <cstdint>
#include <string>

#include "common/attention.hpp"

namespace flash {

/// How many tiles of `tile` elements cover `size` elements.
constexpr int64_t ceil_div(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/// `size` as the int that kernels count with (offsets in memory stay 64-bit). Throws Error when it is above two
/// thousand million: an int reaches 7% further, which leaves room for the end of the last tile.
inline int as_int(int64_t size, const char* name) {
    constexpr int64_t most = 2'000'000'000;
    if (size > most) {
        throw Error(std::string(name) + " is " + std::to_string(size) + "; the CUDA rungs count to " +
                    std::to_string(most) + " at most");
    }
    return static_cast<int>(size);
}

} // namespace flash
