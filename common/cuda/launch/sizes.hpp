// Arithmetic on sizes that every launcher does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "common/error.hpp"

namespace flash {

/// How many tiles of `tile` elements cover `size` elements.
constexpr int64_t ceil_div(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/// `size` as the int that kernels count with (offsets in memory stay 64-bit). Throws Error when it
/// is above two billion: an int reaches 7% further, which leaves room for the end of the last tile.
inline int as_int(int64_t size, const char* name) {
    constexpr int64_t most = 2'000'000'000;
    if (size > most) {
        throw Error(std::string(name) + " is " + std::to_string(size) +
                    "; the CUDA rungs count to " + std::to_string(most) + " at most");
    }
    return static_cast<int>(size);
}

/// Calls run(std::integral_constant<int, d>{}) if d is one of `head_dims`, a constexpr array. So a
/// launcher's variable becomes its kernel's constant. Throws Error when d is none of them.
template <const auto& head_dims, class Run> void for_head_dim(int64_t d, const Run& run) {
    const auto try_all = [&]<size_t... i>(std::index_sequence<i...>) {
        return ((d == head_dims[i] && (run(std::integral_constant<int, head_dims[i]>{}), true)) ||
                ...);
    };
    if (!try_all(std::make_index_sequence<std::size(head_dims)>{})) {
        std::string all;
        for (const int head_dim : head_dims) {
            all += (all.empty() ? "" : ", ") + std::to_string(head_dim);
        }
        throw Error("head dim must be one of " + all + ", got " + std::to_string(d));
    }
}

} // namespace flash
