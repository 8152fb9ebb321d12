#include "common/simt/origin.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include "common/simt/program.hpp"
#include "common/simt/symbols.hpp"

namespace flash::simt {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t site_bit = 0x80000000u;

struct Sites {
    std::mutex mutex;
    std::vector<Site> by_number;
    std::map<std::pair<const char*, int>, uint32_t> numbers;
};

Sites& sites() {
    static Sites known;
    return known;
}

bool is_executable(const fs::path& path) { return access(path.c_str(), X_OK) == 0; }

bool have_addr2line() {
    const char* const path = std::getenv("PATH");
    std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
    while (!rest.empty()) {
        const size_t end = rest.find(':');
        if (is_executable(fs::path(rest.substr(0, end)) / "addr2line")) {
            return true;
        }
        rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
    return false;
}

/// Lines in these are the vocabulary, not the kernel: `float4`'s copy, a shuffle's wrapper, a standard header.
bool is_runtime(const std::string& file) {
    const bool tests = file.find("common/simt/tests/") != std::string::npos;
    return !tests &&
           (file.find("common/simt/") != std::string::npos || file.find("common/cuda/") != std::string::npos ||
            file.find("common/types.hpp") != std::string::npos || file.starts_with("/usr/include/") ||
            file.starts_with("/usr/lib/"));
}

/// "/home/me/flash-steps/steps/x.cu:57 (discriminator 3)"
SourceLine parse(const std::string& text) {
    const size_t colon = text.rfind(':', text.find(" (discriminator"));
    const int line = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
    return line > 0 ? SourceLine{text.substr(0, colon), line} : SourceLine{};
}

/// Short, and the same for one file however it was named: relative to the current folder when it lies inside.
std::string shorten(const std::string& file) {
    const fs::path path = fs::path(file).lexically_normal();
    const fs::path relative = path.lexically_relative(fs::current_path());
    return path.is_relative() || relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
}

/// One line for each address: `addr2line -a -i` prints the address, then the chain of inlined calls, innermost first.
std::map<uint32_t, SourceLine> run_addr2line(const std::vector<uint32_t>& addresses) {
    std::map<uint32_t, SourceLine> lines;
    char name[] = "/tmp/flash-simt-XXXXXX";
    const int file = mkstemp(name);
    if (file < 0) {
        return lines;
    }
    std::FILE* const input = fdopen(file, "w");
    for (const uint32_t address : addresses) {
        std::fprintf(input, "0x%x\n", address - 1); // a return address stands behind its call
    }
    std::fclose(input);
    const std::string command = "addr2line -a -i -e '" + program_file() + "' < " + std::string(name) + " 2>/dev/null";
    if (std::FILE* const output = popen(command.c_str(), "r")) {
        char text[4096];
        uint32_t address = 0;
        while (std::fgets(text, sizeof text, output) != nullptr) {
            if (std::string_view(text).starts_with("0x")) {
                address = static_cast<uint32_t>(std::strtoul(text, nullptr, 16)) + 1;
                continue;
            }
            const SourceLine line = parse(text);
            SourceLine& chosen = lines[address];
            if (chosen.line == 0 && line.line != 0 && !is_runtime(line.file)) {
                chosen = {shorten(line.file), line.line};
            }
        }
        pclose(output);
    }
    unlink(name);
    return lines;
}

/// Sites hold the name that the compiler was given, debug information an absolute one.
std::string match(const std::string& file, const std::map<uint32_t, SourceLine>& known) {
    for (const auto& [address, line] : known) {
        if (line.file.ends_with("/" + file)) {
            return line.file;
        }
    }
    return file;
}

std::map<uint32_t, SourceLine>& resolved() {
    static std::map<uint32_t, SourceLine> lines;
    return lines;
}

} // namespace

Origin Origin::of(Site site) {
    Sites& known = sites();
    const std::lock_guard lock(known.mutex);
    const auto [found, is_new] =
        known.numbers.try_emplace({site.file, site.line}, static_cast<uint32_t>(known.by_number.size()) | site_bit);
    if (is_new) {
        known.by_number.push_back(site);
    }
    return Origin(found->second);
}

std::vector<SourceLine> resolve(const std::vector<Origin>& origins) {
    auto& known = resolved();
    std::vector<uint32_t> unknown;
    for (const Origin origin : origins) {
        if ((origin.number() & site_bit) == 0 && !known.contains(origin.number())) {
            unknown.push_back(origin.number());
            known[origin.number()] = {};
        }
    }
    if (!unknown.empty()) {
        for (auto& [address, line] : run_addr2line(unknown)) {
            known[address] = line;
        }
    }
    std::vector<SourceLine> lines;
    for (const Origin origin : origins) {
        if ((origin.number() & site_bit) == 0) {
            lines.push_back(known[origin.number()]);
        } else {
            const Site site = sites().by_number[origin.number() & ~site_bit];
            lines.push_back({match(shorten(site.file), known), site.line});
        }
    }
    return lines;
}

std::string why_unresolved() {
    return have_addr2line() ? "compile the kernel with -g" : "install addr2line (package binutils)";
}

} // namespace flash::simt
