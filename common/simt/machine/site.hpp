// A place in the source, taken by the caller of a function whose last parameter is `Site site =
// Site::here()`.
#pragma once

#include <cstring>

namespace flash::simt {

struct Site {
    const char* file = "";
    int line = 0;

    // Compiler built-ins rather than std::source_location: clang 14 has the one and not the other.
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
    friend bool operator==(const Site& a, const Site& b) {
        return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
    }
};

} // namespace flash::simt
