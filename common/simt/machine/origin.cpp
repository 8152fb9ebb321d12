#include "common/simt/machine/origin.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>

#include "common/simt/machine/program.hpp"
#include "common/simt/machine/symbols.hpp"

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

bool have_addr2line = true; // until it cannot be started

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

/// What `addr2line -a -i` says of addresses, which it takes from a file; empty when it cannot be started. Without a
/// shell in between, so that a path may have any characters.
std::string run_addr2line(const std::string& addresses) {
    std::string program = program_file();
    std::string words[] = {"addr2line", "-a", "-i", "-e", program};
    char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                               words[3].data(), words[4].data(), nullptr};
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::tmpfile(), std::fclose);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
    if (!in || !out) {
        return "";
    }
    std::fputs(addresses.c_str(), in.get());
    std::rewind(in.get());
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fileno(in.get()), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, fileno(out.get()), STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const bool started = posix_spawnp(&child, words[0].c_str(), &files, nullptr, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&files);
    if (!started) {
        have_addr2line = false;
        return "";
    }
    waitpid(child, nullptr, 0);
    std::rewind(out.get()); // the child has moved the place that both share
    std::string text;
    char part[4096];
    for (size_t size = 0; (size = std::fread(part, 1, sizeof part, out.get())) > 0;) {
        text.append(part, size);
    }
    return text;
}

/// One line for each address: it prints the address, then the chain of inlined calls, innermost first.
std::map<uint32_t, SourceLine> look_up(const std::vector<uint32_t>& addresses) {
    std::ostringstream wanted;
    for (const uint32_t address : addresses) {
        wanted << "0x" << std::hex << address - 1 << '\n'; // a return address stands behind its call
    }
    std::istringstream output(run_addr2line(wanted.str()));
    std::map<uint32_t, SourceLine> lines;
    uint32_t address = 0;
    for (std::string text; std::getline(output, text);) {
        if (text.starts_with("0x")) {
            address = static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 16)) + 1;
            continue;
        }
        const SourceLine line = parse(text);
        SourceLine& chosen = lines[address];
        if (chosen.line == 0 && line.line != 0 && !is_runtime(line.file)) {
            chosen = {shorten(line.file), line.line};
        }
    }
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
    struct Recent {
        Site site;
        Origin origin;
    };
    static constinit thread_local std::array<Recent, 64> all_recent{}; // by line
    Recent& recent = all_recent[static_cast<size_t>(site.line) % all_recent.size()];
    if (recent.site.line != site.line || recent.site.file != site.file) {
        Sites& known = sites();
        const std::lock_guard lock(known.mutex);
        const auto [found, is_new] =
            known.numbers.try_emplace({site.file, site.line}, static_cast<uint32_t>(known.by_number.size()) | site_bit);
        if (is_new) {
            known.by_number.push_back(site);
        }
        recent = {site, Origin(found->second)};
    }
    return recent.origin;
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
        for (auto& [address, line] : look_up(unknown)) {
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
    return have_addr2line ? "compile the kernel with -g" : "install addr2line (package binutils)";
}

} // namespace flash::simt
