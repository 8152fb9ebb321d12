// A line of the source, taken by the caller of a function whose last parameter is `SourceLocation
// location = SourceLocation::here()`.
#pragma once

#include <cstring>

namespace flash::simt {

struct SourceLocation {
    const char* file = "";
    int line = 0;

    // Compiler built-ins rather than std::source_location: clang 14 has the one and not the other.
    static constexpr SourceLocation here(const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE()) {
        return {file, line};
    }
    friend bool operator==(const SourceLocation& a, const SourceLocation& b) {
        return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
    }
};

} // namespace flash::simt
