#include "common/simt/machine/simt_options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "common/error.hpp"

namespace flash::simt {
namespace {

[[noreturn]] void refuse(const std::string& variable, std::string_view value,
                         const std::string& expected) {
    throw Error(variable + "='" + std::string(value) + "' is not understood; it can be " +
                expected);
}

std::optional<uint64_t> number(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
}

Schedule parse_schedule(const std::string& variable, std::string_view text) {
    if (text == "in-order") {
        return {Schedule::in_order, 0};
    }
    if (text == "reverse") {
        return {Schedule::reverse, 0};
    }
    const size_t colon = text.find(':');
    const auto value =
        colon == std::string_view::npos ? std::nullopt : number(text.substr(colon + 1));
    if (value && text.starts_with("ahead:") && *value < 32) {
        return {Schedule::one_warp_ahead, *value};
    }
    if (value && text.starts_with("shuffle:")) {
        return {Schedule::shuffle, *value};
    }
    if (value && text.starts_with("starve:") && *value < 1024) {
        return {Schedule::starve, *value};
    }
    refuse(variable, text,
           "in-order, reverse, ahead:WARP (WARP from 0 to 31), shuffle:SEED or starve:THREAD "
           "(THREAD from 0 to 1023)");
}

std::string_view variable(const char* name) { // empty: not set
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

int number_from(const char* name, uint64_t low, uint64_t high, int otherwise) {
    const std::string_view text = variable(name);
    const auto value = number(text);
    if (!text.empty() && (!value || *value < low || *value > high)) {
        refuse(name, text, "a number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return text.empty() ? otherwise : static_cast<int>(*value);
}

/// "matmul.cu:31,scan.cu:7"
std::vector<FileLine> parse_lines(const std::string& name, std::string_view text) {
    std::vector<FileLine> lines;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view one = text.substr(begin, end - begin);
        const size_t colon = std::min(one.rfind(':'), one.size());
        const auto line = colon < one.size() ? number(one.substr(colon + 1)) : std::nullopt;
        if (colon == 0 || !line || *line == 0) {
            refuse(name, text, "FILE:LINE, or several of them with commas between");
        }
        lines.push_back({std::string(one.substr(0, colon)), static_cast<int>(*line)});
        begin = end + 1;
    }
    return lines;
}

Options from_environment() {
    Options chosen;
    if (const auto text = variable("FLASH_SIMT_SCHEDULE"); !text.empty()) {
        chosen.schedule = parse_schedule("FLASH_SIMT_SCHEDULE", text);
    }
    if (const auto text = variable("FLASH_SIMT_CP_ASYNC"); text == "early") {
        chosen.cp_async = CpAsync::early;
    } else if (!text.empty() && text != "late") {
        refuse("FLASH_SIMT_CP_ASYNC", text, "late or early");
    }
    chosen.detect = number_from("FLASH_SIMT_DETECT", 0, 1, 0) == 1;
    chosen.workers = number_from("FLASH_SIMT_WORKERS", 1, 1024, chosen.workers);
    chosen.shared_kib = number_from("FLASH_SIMT_SHARED_KIB", 1, 227, chosen.shared_kib);
    chosen.memory_mib = static_cast<uint64_t>(number_from("FLASH_SIMT_MEMORY_MIB", 1, 1 << 24, 0));
    chosen.keep_going = number_from("FLASH_SIMT_KEEP_GOING", 0, 1, 0) == 1;
    chosen.strict = number_from("FLASH_SIMT_STRICT", 0, 1, 0) == 1;
    chosen.ignore = parse_lines("FLASH_SIMT_IGNORE", variable("FLASH_SIMT_IGNORE"));
    const auto unsigned_from = [](const char* name, unsigned otherwise) {
        constexpr uint64_t most = 1000000000;
        return static_cast<unsigned>(number_from(name, 0, most, static_cast<int>(otherwise)));
    };
    chosen.launches = unsigned_from("FLASH_SIMT_LAUNCHES", chosen.launches);
    chosen.sample = unsigned_from("FLASH_SIMT_SAMPLE", chosen.sample);
    chosen.kernel = variable("FLASH_SIMT_KERNEL");
    chosen.timeout = unsigned_from("FLASH_SIMT_TIMEOUT", chosen.timeout);
    chosen.seconds = unsigned_from("FLASH_SIMT_SECONDS", chosen.seconds);
    return chosen;
}

} // namespace

Options& options() {
    static Options current = from_environment();
    return current;
}

std::string to_string(const Schedule& schedule) {
    constexpr const char* names[] = {"in-order", "reverse", "ahead:", "shuffle:", "starve:"};
    const bool numbered = schedule.kind != Schedule::in_order && schedule.kind != Schedule::reverse;
    return names[schedule.kind] + (numbered ? std::to_string(schedule.number) : "");
}

} // namespace flash::simt
