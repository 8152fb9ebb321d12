// Places in the source, in code that is optimised as the runtime is: a compiler's fault shows there
// alone.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "common/simt/machine/location_id.hpp"
#include "common/simt/machine/source_location.hpp"

using flash::simt::LocationId;
using flash::simt::SourceLocation;

namespace {

struct Meeting {
    char kind;
    unsigned mask, arrived;
    const char* operation;
    SourceLocation location;
    void (*combine)();
};

void first() {}
void second() {}

struct Apart {
    SourceLocation expected, found;
};

[[noreturn, gnu::noinline]] void stop(const char*, SourceLocation expected, SourceLocation found) {
    throw Apart{expected, found};
}

/// What Block::collective does with the place of a meeting.
[[gnu::always_inline]] inline void arrive(std::vector<Meeting>& meetings, const char* operation,
                                          SourceLocation location, unsigned mask,
                                          void (*combine)()) {
    auto meeting = std::ranges::find(meetings, mask, &Meeting::mask);
    if (meeting == meetings.end()) {
        meeting = meetings.insert(meeting, {1, mask, 0, operation, location, combine});
    } else if (!(meeting->location == location) || meeting->combine != combine) {
        stop(operation, location, meeting->location);
    }
    ++meeting->arrived;
}

[[gnu::noinline]] void arrive_at(std::vector<Meeting>& meetings, bool other,
                                 SourceLocation location) {
    arrive(meetings, "an instruction", location, 0xffffffff, other ? second : first);
}

} // namespace

TEST_CASE("a meeting keeps its place") {
    std::vector<Meeting> meetings;
    const SourceLocation here = SourceLocation::here();
    arrive_at(meetings, false, here);
    CHECK_NOTHROW(arrive_at(meetings, false, here));
    CHECK(meetings[0].location.file == here.file);
    CHECK(meetings[0].location.line == here.line);
    CHECK(meetings[0].location.column == here.column);
}

TEST_CASE("places are equal in file, line and column") {
    const std::string same = "a.cu"; // at another address
    const SourceLocation place{"a.cu", 3, 5};
    CHECK(place == SourceLocation{same.c_str(), 3, 5});
    CHECK_FALSE(place == SourceLocation{"b.cu", 3, 5});
    CHECK_FALSE(place == SourceLocation{"a.cu", 4, 5});
    CHECK_FALSE(place == SourceLocation{"a.cu", 3, 6});
}

TEST_CASE("a place without a file is a line that is not known") {
    const auto lines = flash::simt::resolve({LocationId::of({nullptr, 3, 5})});
    REQUIRE(lines.size() == 1);
    CHECK(lines[0] == flash::simt::SourceLine{});
}
