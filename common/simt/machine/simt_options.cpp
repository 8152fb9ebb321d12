#include "common/simt/machine/simt_options.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "common/attention.hpp"

namespace flash::simt {
namespace {

[[noreturn]] void refuse(const std::string& variable, std::string_view value, const std::string& expected) {
    throw Error(variable + "='" + std::string(value) + "' is not understood; it can be " + expected);
}

std::optional<uint64_t> number(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

Schedule parse_schedule(const std::string& variable, std::string_view text) {
    if (text == "in-order") {
        return {Schedule::in_order, 0};
    }
    if (text == "reverse") {
        return {Schedule::reverse, 0};
    }
    const size_t colon = text.find(':');
    const auto value = colon == std::string_view::npos ? std::nullopt : number(text.substr(colon + 1));
    if (value && text.starts_with("ahead:") && *value < 32) {
        return {Schedule::one_warp_ahead, *value};
    }
    if (value && text.starts_with("shuffle:")) {
        return {Schedule::shuffle, *value};
    }
    refuse(variable, text, "in-order, reverse, ahead:WARP (WARP from 0 to 31) or shuffle:SEED");
}

Options from_environment() {
    Options chosen;
    const auto read = [](const char* name, auto use) {
        if (const char* text = std::getenv(name); text != nullptr && *text != '\0') {
            use(std::string(name), std::string_view(text));
        }
    };
    const auto read_number = [&](const char* name, uint64_t low, uint64_t high, int& result) {
        read(name, [&](const std::string& variable, std::string_view text) {
            const auto value = number(text);
            if (!value || *value < low || *value > high) {
                refuse(variable, text, "a number from " + std::to_string(low) + " to " + std::to_string(high));
            }
            result = static_cast<int>(*value);
        });
    };
    read("FLASH_SIMT_SCHEDULE",
         [&](const std::string& variable, std::string_view text) { chosen.schedule = parse_schedule(variable, text); });
    read("FLASH_SIMT_CP_ASYNC", [&](const std::string& variable, std::string_view text) {
        if (text != "late" && text != "early") {
            refuse(variable, text, "late or early");
        }
        chosen.cp_async = text == "late" ? CpAsync::late : CpAsync::early;
    });
    int detect = 0;
    read_number("FLASH_SIMT_DETECT", 0, 1, detect);
    chosen.detect = detect == 1;
    read_number("FLASH_SIMT_WORKERS", 1, 1024, chosen.workers);
    read_number("FLASH_SIMT_SHARED_KIB", 1, 227, chosen.shared_kib);
    return chosen;
}

} // namespace

Options& options() {
    static Options current = from_environment();
    return current;
}

std::string to_string(const Schedule& schedule) {
    switch (schedule.kind) {
    case Schedule::in_order:
        return "in-order";
    case Schedule::reverse:
        return "reverse";
    case Schedule::one_warp_ahead:
        return "ahead:" + std::to_string(schedule.number);
    default:
        return "shuffle:" + std::to_string(schedule.number);
    }
}

} // namespace flash::simt
