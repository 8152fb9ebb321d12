// What the tests of the SIMT backend share.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"
#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"

namespace simt_test {

using namespace flash;
using simt::Fault;
using simt::FaultKind;

/// Global memory of exactly `values.size()` elements.
template <class T> class Buffer {
  public:
    explicit Buffer(const std::vector<T>& values)
        : buffer_(static_cast<int64_t>(values.size()), "data"), size_(values.size()) {
        std::copy(values.begin(), values.end(), buffer_.data()); // the host can reach it here
    }
    explicit Buffer(size_t size) : Buffer(std::vector<T>(size)) {}
    T* data() const { return buffer_.data(); }
    std::vector<T> values() const { return std::vector<T>(data(), data() + size_); }

  private:
    DeviceBuffer<T> buffer_;
    size_t size_;
};

/// Options for the length of a scope; those that are not named have their defaults.
class With {
  public:
    explicit With(const simt::Options& chosen) : before_(simt::options()) {
        simt::options() = chosen;
    }
    ~With() { simt::options() = before_; }
    With(const With&) = delete;
    With& operator=(const With&) = delete;

  private:
    simt::Options before_;
};

/// The fault that `launch` ends with.
template <class Launch> Fault fault_of(Launch launch) {
    try {
        launch();
    } catch (const Fault& fault) {
        return fault;
    }
    FAIL("no fault was reported");
    throw std::logic_error("not reached");
}

/// The number of the one line of `file` that ends with "// <tag>", or has that above itself.
inline int line_of(const char* file, const std::string& tag) {
    std::ifstream source(file);
    std::string line;
    for (int number = 1; std::getline(source, line); ++number) {
        if (line.ends_with("// " + tag)) {
            return line.find_first_not_of(' ') == line.rfind("//") ? number + 1 : number;
        }
    }
    FAIL("no line of " << file << " is marked // " << tag);
    return 0;
}

/// The fault that `launch` ends with: of that kind, at the line with that tag.
template <class Launch>
Fault fault_at(const char* tag, FaultKind kind, Launch launch,
               const char* file = __builtin_FILE()) {
    const Fault fault = fault_of(launch);
    CAPTURE(fault.what(), tag);
    CHECK(fault.kind == kind);
    CHECK(fault.where.line.line == line_of(file, tag));
    return fault;
}

/// Its two lines, whichever came first, are those with these tags.
inline void check_lines(const Fault& fault, const char* one, const char* other,
                        const char* file = __builtin_FILE()) {
    CAPTURE(fault.what(), one, other);
    CHECK(fault.where.line.line + fault.other.line.line ==
          line_of(file, one) + line_of(file, other));
}

/// Every schedule that the tests try.
inline std::vector<simt::Schedule> schedules() {
    using simt::Schedule;
    return {{Schedule::in_order, 0},       {Schedule::reverse, 0}, {Schedule::one_warp_ahead, 1},
            {Schedule::one_warp_ahead, 3}, {Schedule::shuffle, 1}, {Schedule::shuffle, 2},
            {Schedule::shuffle, 3},        {Schedule::starve, 5}};
}

/// With detectors (or without), in every schedule and with both landings of cp.async.
template <class Use> void in_every_way(Use use, bool detect = true) {
    for (const simt::Schedule& schedule : schedules()) {
        for (const simt::CpAsync landing : {simt::CpAsync::late, simt::CpAsync::early}) {
            const With chosen({.schedule = schedule, .cp_async = landing, .detect = detect});
            CAPTURE(simt::to_string(schedule), landing == simt::CpAsync::late);
            use();
        }
    }
}

} // namespace simt_test
