// Arithmetic on sizes that every launcher does.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "common/attention.hpp"

namespace flash {

/// How many tiles of `tile` elements cover `size` elements.
constexpr int64_t ceil_div(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/// `size` as the int that kernels count with (offsets in memory stay 64-bit). Throws Error when it does not fit.
inline int as_int(int64_t size, const char* name) {
    if (size > std::numeric_limits<int>::max()) {
        throw Error(std::string(name) + " is " + std::to_string(size) + "; a CUDA rung counts to 2147483647 at most");
    }
    return static_cast<int>(size);
}

} // namespace flash
