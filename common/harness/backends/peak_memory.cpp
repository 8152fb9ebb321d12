#include "common/harness/backends/peak_memory.hpp"

#include <fstream>
#include <string>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace flash {
namespace {

/// The largest resident size since the last reset, in bytes.
std::optional<size_t> high_water_mark() {
    std::ifstream file("/proc/self/status");
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with("VmHWM:")) { // "VmHWM:     1234 kB"
            return std::stoull(line.substr(6)) * 1024;
        }
    }
    return std::nullopt;
}

/// Sets the mark back to the present size.
bool reset_high_water_mark() {
    std::ofstream file("/proc/self/clear_refs");
    return static_cast<bool>(file << "5" << std::flush);
}

} // namespace

std::optional<size_t> peak_memory_of(const std::function<void()>& work) {
#ifdef __GLIBC__
    malloc_trim(0); // memory that was freed but kept would be used again and not show as new
#endif
    const bool measurable = reset_high_water_mark();
    const auto before = high_water_mark();
    work();
    const auto after = high_water_mark();
    if (!measurable || !before || !after) {
        return std::nullopt;
    }
    return *after - *before;
}

} // namespace flash
