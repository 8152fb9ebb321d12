#include "common/simt/machine/call_chain.hpp"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "common/simt/machine/debug_info.hpp"

namespace flash::simt {
namespace {

struct OneCall {
    uint32_t caller; // the call that its own function was called by
    uint32_t from;   // code address behind the call
    uint32_t into;   // code address in the function
};

/// Those that have happened. The first is none: the kernel's own code.
struct AllCalls {
    std::mutex mutex;
    std::vector<OneCall> by_number{OneCall{}};
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers; // by caller and `from`
};

AllCalls& all_calls() {
    static AllCalls known;
    return known;
}

OneCall call_of(uint32_t number) {
    const std::lock_guard lock(all_calls().mutex);
    return all_calls().by_number[number];
}

} // namespace

uint32_t call_number(uint32_t caller, uint32_t from, uint32_t into) {
    struct Recent {
        uint32_t caller, from, number;
    };
    static constinit thread_local std::array<Recent, 64> all_recent{};
    Recent& recent = all_recent[(from + 31 * caller) % all_recent.size()];
    if (recent.number == 0 || recent.caller != caller || recent.from != from) {
        AllCalls& known = all_calls();
        const std::lock_guard lock(known.mutex);
        const auto [found, is_new] = known.numbers.try_emplace(
            {caller, from}, static_cast<uint32_t>(known.by_number.size()));
        if (is_new) {
            known.by_number.push_back({caller, from, into});
        }
        recent = {caller, from, found->second};
    }
    return recent.number;
}

LocationId place_of_call(uint32_t number) {
    const OneCall call = call_of(number);
    return LocationId::of_code(reinterpret_cast<const void*>(uintptr_t{call.from}), 0)
        .within(call.caller);
}

std::vector<Call> calls_to(LocationId place) {
    std::vector<Frame> frames;
    const auto add = [&frames](const std::vector<Frame>& more) {
        for (const Frame& frame : more) {
            if (frame.line.line > 0 && !is_runtime(frame.line.file)) {
                frames.push_back(frame);
            }
        }
    };
    uint32_t number = place.call();
    const LocationId innermost = place.place();
    if (!innermost.is_site()) {
        add(frames_at(uint64_t{innermost.number()} - 1));
    } else if (number != 0) {
        // the function that was called, without those inlined into it
        const std::vector<Frame> known = frames_at(call_of(number).into);
        add({{known.empty() ? "" : known.back().function, resolve({innermost}).front()}});
    }
    while (number != 0) {
        const OneCall call = call_of(number);
        add(frames_at(uint64_t{call.from} - 1));
        number = call.caller;
    }
    std::vector<Call> calls;
    for (size_t i = 0; i + 1 < frames.size(); ++i) { // the last one is the kernel
        const SourceLine& line = frames[i + 1].line;
        calls.push_back({frames[i].function, {shorten(line.file), line.line}});
    }
    return calls;
}

} // namespace flash::simt
