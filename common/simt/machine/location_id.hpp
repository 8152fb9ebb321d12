// Where in the program an access happened: one number that costs nothing to take, and becomes file
// and line later.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/machine/source_line.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

/// Either a code address (of an instrumented access) or a SourceLocation (of a call into the
/// runtime).
class LocationId {
  public:
    LocationId() = default;

    /// From the return address of a callback; `load_address` is the executable's.
    static LocationId of_code(const void* return_address, size_t load_address) {
        return LocationId(
            static_cast<uint32_t>(reinterpret_cast<size_t>(return_address) - load_address));
    }
    static LocationId of(SourceLocation location);
    static LocationId from(uint32_t number) { return LocationId(number); }

    /// The same place inside calls of device functions (call_chain.hpp).
    LocationId within(uint32_t call) const { return call == 0 ? *this : inside(call); }
    LocationId place() const; // without them
    uint32_t call() const;    // 0: there are none
    bool is_site() const { return number_ >> 31 != 0; }

    uint32_t number() const { return number_; }
    friend auto operator<=>(LocationId, LocationId) = default;

  private:
    explicit LocationId(uint32_t number) : number_(number) {}
    LocationId inside(uint32_t call) const;

    // The highest bit tells source locations from code addresses; below a GiB of code, the next one
    // says that calls lead to the place.
    uint32_t number_ = 0;
};

/// Lines in these files are the runtime, not the kernel: `float4`'s copy, a shuffle's wrapper, a
/// standard header.
bool is_runtime(const std::string& file);

/// Short, and the same for one file however it was named: relative to the current folder when it
/// lies inside.
std::string shorten(const std::string& file);

/// The kernel's source line of each origin. For inlined code that is the innermost line outside the
/// runtime's own headers. Safe to call from several threads.
std::vector<SourceLine> resolve(const std::vector<LocationId>& origins);

/// How to get the line of a code address that has none.
inline constexpr const char* why_unresolved = "compile the kernel with -g";

} // namespace flash::simt
