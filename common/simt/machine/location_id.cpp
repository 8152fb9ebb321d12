#include "common/simt/machine/location_id.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <mutex>

#include "common/simt/machine/debug_info.hpp"

namespace flash::simt {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t site_bit = 0x80000000u;
constexpr uint32_t call_bit = 0x40000000u;

struct Sites {
    std::mutex mutex;
    std::vector<SourceLocation> by_number;
    std::map<std::pair<const char*, int>, uint32_t> numbers;
};

Sites& sites() {
    static Sites& known = *new Sites; // for good: what is counted is told when the program ends
    return known;
}

SourceLocation site_of(LocationId origin) {
    const std::lock_guard lock(sites().mutex);
    return sites().by_number[origin.number() & ~site_bit];
}

/// The kernel's line of an instruction that ends at this address, as a call does before the one it
/// returns to. A function of common/cuda/derived that was not inlined has no line of the kernel:
/// its own, then.
SourceLine look_up(uint32_t end) {
    SourceLine shared_by_kernels;
    for (const auto& [function, line] : frames_at(uint64_t{end} - 1)) {
        if (line.line > 0 && !is_runtime(line.file)) {
            return {shorten(line.file), line.line};
        }
        const bool derived = line.file.find("common/cuda/derived/") != std::string::npos;
        if (line.line > 0 && derived && shared_by_kernels.line == 0) {
            shared_by_kernels = {shorten(line.file), line.line};
        }
    }
    return shared_by_kernels;
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

/// Places inside device functions, with the calls that lead there.
struct Within {
    std::mutex mutex;
    std::vector<std::pair<uint32_t, uint32_t>> by_number; // place, call
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
};

Within& within_calls() {
    static Within& known = *new Within; // for good, too
    return known;
}

std::pair<uint32_t, uint32_t> place_and_call(uint32_t number) {
    const std::lock_guard lock(within_calls().mutex);
    return within_calls().by_number[number & ~call_bit];
}

bool is_within(uint32_t number) { return (number & (site_bit | call_bit)) == call_bit; }

} // namespace

bool is_runtime(const std::string& file) {
    const bool tests = file.find("common/tests/simt/") != std::string::npos;
    return !tests && (file.find("common/simt/") != std::string::npos ||
                      file.find("common/cuda/") != std::string::npos ||
                      file.find("common/types.hpp") != std::string::npos ||
                      file.starts_with("/usr/include/") || file.starts_with("/usr/lib/"));
}

std::string shorten(const std::string& file) {
    const fs::path path = fs::path(file).lexically_normal();
    const fs::path relative = path.lexically_relative(fs::current_path());
    return path.is_relative() || relative.empty() || *relative.begin() == ".." ? path.string()
                                                                               : relative.string();
}

LocationId LocationId::inside(uint32_t call) const {
    if (is_within(number_)) {
        return *this;
    }
    struct Recent {
        uint32_t place, call, number;
    };
    static constinit thread_local std::array<Recent, 256> all_recent{};
    Recent& recent = all_recent[(number_ + 31 * call) % all_recent.size()];
    if (recent.place != number_ || recent.call != call) {
        Within& known = within_calls();
        const std::lock_guard lock(known.mutex);
        const auto [found, is_new] = known.numbers.try_emplace(
            {number_, call}, static_cast<uint32_t>(known.by_number.size()) | call_bit);
        if (is_new) {
            known.by_number.emplace_back(number_, call);
        }
        recent = {number_, call, found->second};
    }
    return LocationId(recent.number);
}

LocationId LocationId::place() const {
    return is_within(number_) ? LocationId(place_and_call(number_).first) : *this;
}

uint32_t LocationId::call() const {
    return is_within(number_) ? place_and_call(number_).second : 0;
}

LocationId LocationId::of(SourceLocation location) {
    struct Recent {
        SourceLocation location;
        LocationId origin;
    };
    static constinit thread_local std::array<Recent, 64> all_recent{}; // by line
    Recent& recent = all_recent[static_cast<size_t>(location.line) % all_recent.size()];
    if (recent.location.line != location.line || recent.location.file != location.file) {
        Sites& known = sites();
        const std::lock_guard lock(known.mutex);
        const auto [found, is_new] =
            known.numbers.try_emplace({location.file, location.line},
                                      static_cast<uint32_t>(known.by_number.size()) | site_bit);
        if (is_new) {
            known.by_number.push_back(location);
        }
        recent = {location, LocationId(found->second)};
    }
    return recent.origin;
}

std::vector<SourceLine> resolve(const std::vector<LocationId>& origins) {
    static std::mutex one_at_a_time;
    static auto& known = *new std::map<uint32_t, SourceLine>; // for good, too
    const std::lock_guard lock(one_at_a_time);
    for (const LocationId known_within : origins) {
        const LocationId origin = known_within.place();
        if (!origin.is_site() && !known.contains(origin.number())) {
            known.emplace(origin.number(), look_up(origin.number()));
        }
    }
    std::vector<SourceLine> lines;
    for (const LocationId known_within : origins) {
        const LocationId origin = known_within.place();
        if (!origin.is_site()) {
            lines.push_back(known[origin.number()]);
        } else {
            const SourceLocation location = site_of(origin);
            lines.push_back(location.file == nullptr // somebody has passed on no place
                                ? SourceLine{}
                                : SourceLine{match(shorten(location.file), known), location.line});
        }
    }
    return lines;
}

} // namespace flash::simt
