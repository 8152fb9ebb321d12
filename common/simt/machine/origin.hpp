// Where in the program an access happened: one number that costs nothing to take, and becomes file
// and line later.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/machine/site.hpp"

namespace flash::simt {

/// Either a code address (of an instrumented access) or a Site (of a call into the runtime).
class Origin {
  public:
    Origin() = default;

    /// From the return address of a callback; `load_address` is the executable's.
    static Origin of_code(const void* return_address, size_t load_address) {
        return Origin(
            static_cast<uint32_t>(reinterpret_cast<size_t>(return_address) - load_address));
    }
    static Origin of(Site site);
    static Origin from(uint32_t number) { return Origin(number); }

    uint32_t number() const { return number_; }
    friend auto operator<=>(Origin, Origin) = default;

  private:
    explicit Origin(uint32_t number) : number_(number) {}
    uint32_t number_ = 0; // the highest bit tells sites from code addresses
};

struct SourceLine {
    std::string file; // empty: not known, the kernel was compiled without -g
    int line = 0;
    friend auto operator<=>(const SourceLine&, const SourceLine&) = default;
};

/// The kernel's source line of each origin. For inlined code that is the innermost line outside the
/// runtime's own headers. Safe to call from several threads.
std::vector<SourceLine> resolve(const std::vector<Origin>& origins);

/// How to get the line of a code address that has none.
inline constexpr const char* why_unresolved = "compile the kernel with -g";

} // namespace flash::simt
