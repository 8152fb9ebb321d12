// Text for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flash {

/// "3.2 GiB"
std::string format_bytes(double bytes);

/// "dQ" is "dq", its name in files.
std::string in_lower_case(std::string text);

/// 'text' for a message: shortened, and without characters that would upset a terminal.
/// Names come from files that anybody may have written.
std::string in_quotes(std::string_view text);

/// The numbers of "1000,0,37"; nothing when it is something else.
std::optional<std::vector<int64_t>> whole_numbers(const std::string& text);

} // namespace flash
