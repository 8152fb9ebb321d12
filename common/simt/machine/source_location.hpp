// A line of the source, taken by the caller of a function whose last parameter is `SourceLocation
// location = SourceLocation::here()`.
#pragma once

#include <cstring>
#include <version>

#ifdef __cpp_lib_source_location
#include <source_location>
#endif

namespace flash::simt {

// g++ knows the column as std::source_location alone, clang 14 as a built-in alone.
#ifdef __cpp_lib_source_location
#define FLASH_SIMT_COLUMN static_cast<int>(std::source_location::current().column())
#else
#define FLASH_SIMT_COLUMN __builtin_COLUMN()
#endif

struct SourceLocation {
    const char* file = "";
    int line = 0;
    int column = 0; // tells calls on one line apart

    static constexpr SourceLocation here(const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE(),
                                         int column = FLASH_SIMT_COLUMN) {
        return {file, line, column};
    }
    // The file stands between line and column. Side by side, g++ 14.2 compares those two as one
    // number of 64 bits, and at -O3 it then forgets the place when it copies a struct that holds
    // one: a fault of its own, which test_source_location.cpp shows.
    friend bool operator==(const SourceLocation& a, const SourceLocation& b) {
        return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0) &&
               a.column == b.column;
    }
};

#undef FLASH_SIMT_COLUMN

} // namespace flash::simt
