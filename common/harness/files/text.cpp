#include "common/harness/files/text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

namespace flash {

std::string format_bytes(double bytes) {
    static const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < std::size(units)) {
        bytes /= 1024;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

std::string in_lower_case(std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return text;
}

std::string in_quotes(std::string_view text) {
    constexpr size_t longest = 60;
    std::string shown = "'";
    for (const char c : text.substr(0, longest)) {
        shown += c >= ' ' && c <= '~' ? c : '?';
    }
    return shown + (text.size() > longest ? "...'" : "'");
}

std::optional<std::vector<int64_t>> whole_numbers(const std::string& text) {
    std::vector<int64_t> numbers;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        int64_t number = 0;
        const auto [behind, error] = std::from_chars(at, end, number);
        if (error != std::errc() || (behind != end && *behind != ',')) {
            return std::nullopt;
        }
        numbers.push_back(number);
        if (behind == end) {
            return numbers;
        }
        at = behind + 1;
    }
}

} // namespace flash
