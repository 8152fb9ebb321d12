#include "common/harness/backends/host_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// The number that follows `key` in a file of "key value" lines.
std::optional<size_t> read_field(const fs::path& path, const std::string& key) {
    std::ifstream file(path);
    std::string word;
    while (file >> word) {
        if (size_t value = 0; word == key && file >> value) {
            return value;
        }
    }
    return std::nullopt;
}

/// The number that a file consists of; nothing when it is absent or says "max".
std::optional<size_t> read_number(const fs::path& path) {
    std::ifstream file(path);
    size_t value = 0;
    return file >> value ? std::optional(value) : std::nullopt;
}

size_t system_available(const fs::path& root) {
    if (const auto kib = read_field(root / "proc/meminfo", "MemAvailable:")) {
        return *kib * 1024;
    }
    return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// What is left in `group` and each group above it, up to `root`. A limit counts the page cache
/// too, but the kernel drops that part (inactive_file) before it refuses memory.
size_t group_available(const fs::path& root, const fs::path& group, const char* limit_file,
                       const char* usage_file, const char* cache_field) {
    size_t available = std::numeric_limits<size_t>::max();
    fs::path path = group;
    while (true) {
        const fs::path folder = root / path;
        const auto limit = read_number(folder / limit_file);
        const auto usage = read_number(folder / usage_file);
        if (limit && usage) {
            const size_t cache = read_field(folder / "memory.stat", cache_field).value_or(0);
            const size_t used = *usage - std::min(*usage, cache);
            available = std::min(available, *limit - std::min(*limit, used));
        }
        if (path.empty()) {
            return available;
        }
        path = path.parent_path();
    }
}

size_t cgroup_available(const fs::path& root) {
    size_t available = std::numeric_limits<size_t>::max();
    // lines of "id:controllers:/path"; version 2 names no controllers
    std::ifstream file(root / "proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const fs::path group = fs::path(line.substr(second + 1)).relative_path();
        if (controllers == ",,") {
            available =
                std::min(available, group_available(root / "sys/fs/cgroup", group, "memory.max",
                                                    "memory.current", "inactive_file"));
        } else if (controllers.find(",memory,") != std::string::npos) {
            available = std::min(available,
                                 group_available(root / "sys/fs/cgroup/memory", group,
                                                 "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                 "total_inactive_file"));
        }
    }
    return available;
}

/// What `ulimit -v` leaves of the address space.
size_t address_space_available(const fs::path& root) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return std::numeric_limits<size_t>::max();
    }
    const size_t used = read_field(root / "proc/self/status", "VmSize:").value_or(0) * 1024;
    return limit.rlim_cur - std::min<size_t>(limit.rlim_cur, used);
}

} // namespace

size_t available_host_memory(const fs::path& root) {
    return std::min(
        {system_available(root), cgroup_available(root), address_space_available(root)});
}

} // namespace flash
