#include "common/simt/machine/fault.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

namespace flash::simt {
namespace {

std::string describe(const ThreadAction& place) {
    const std::string where =
        place.line.line > 0 ? place.line.file + ":" + std::to_string(place.line.line)
                            : "a line that is not known (" + std::string(why_unresolved) + ")";
    std::string text = "thread " + to_string(place.thread) + " of block " + to_string(place.block) +
                       " " + place.action + " at " + where;
    constexpr size_t most_calls = 8; // a recursion has many
    for (const Call& call : place.calls) {
        if (&call == place.calls.data() + most_calls) {
            text += "\n    and " + plural(place.calls.size() - most_calls, "call") + " more";
            break;
        }
        text += "\n    in " + call.function + ", called at " + call.called_at.file + ":" +
                std::to_string(call.called_at.line);
    }
    return text;
}

/// Where the kernel itself is: at the access, or at the call that leads to it.
const SourceLine& line_in_kernel(const ThreadAction& action) {
    return action.calls.empty() ? action.line : action.calls.back().called_at;
}

/// Whether a barrier's line is between those of two accesses, which makes a reader think that it
/// orders them.
bool stands_between(const SourceLine& barrier, const ThreadAction& one, const ThreadAction& other) {
    const SourceLine& first = line_in_kernel(one);
    const SourceLine& second = line_in_kernel(other);
    return barrier.file == first.file && barrier.file == second.file &&
           std::min(first.line, second.line) <= barrier.line &&
           barrier.line <= std::max(first.line, second.line);
}

const char* name_of(FaultKind kind) {
    switch (kind) {
    case FaultKind::unordered_streams:
        return "unordered_streams";
    case FaultKind::host_misuse:
        return "host_misuse";
    case FaultKind::launch:
        return "launch";
    case FaultKind::out_of_bounds:
        return "out_of_bounds";
    case FaultKind::misaligned:
        return "misaligned";
    case FaultKind::race:
        return "race";
    case FaultKind::uninitialised:
        return "uninitialised";
    case FaultKind::async_copy_in_flight:
        return "async_copy_in_flight";
    case FaultKind::wgmma_in_flight:
        return "wgmma_in_flight";
    case FaultKind::missing_fence:
        return "missing_fence";
    case FaultKind::divergent_barrier:
        return "divergent_barrier";
    case FaultKind::deadlock:
        return "deadlock";
    case FaultKind::missed_phase:
        return "missed_phase";
    case FaultKind::invalid_access:
        return "invalid_access";
    case FaultKind::assertion:
        return "assertion";
    case FaultKind::trap:
        return "trap";
    case FaultKind::timeout:
        return "timeout";
    case FaultKind::volatile_conflict:
        return "volatile_conflict";
    case FaultKind::missing_acquire:
        return "missing_acquire";
    case FaultKind::same_value:
        return "same_value";
    case FaultKind::early_exit:
        return "early_exit";
    case FaultKind::unwritten_copy:
        return "unwritten_copy";
    case FaultKind::undefined_shuffle:
        return "undefined_shuffle";
    case FaultKind::read_before_cas:
        return "read_before_cas";
    }
    return "";
}

} // namespace

Fault::Fault(FaultKind what, std::string summary_text, ThreadAction place, std::string help)
    : KernelFault(summary_text), kind(what), summary(std::move(summary_text)),
      hint(std::move(help)), where(std::move(place)) {
    name = name_of(kind);
}

Fault::Fault(FaultKind what, std::string summary_text, ThreadAction place, ThreadAction other_place,
             std::string help)
    : Fault(what, std::move(summary_text), std::move(place), std::move(help)) {
    has_other = true;
    other = std::move(other_place);
}

Fault completed(Fault fault) {
    std::vector<LocationId> origins{fault.where.origin};
    if (fault.has_other) {
        origins.push_back(fault.other.origin);
    }
    origins.push_back(fault.since);
    const auto lines = resolve(origins);
    fault.where.line = lines[0];
    fault.where.calls = calls_to(fault.where.origin);
    std::string text =
        (fault.is_warning ? "warning: " : "") + fault.summary + "\n  in " + fault.kernel;
    text += "\n  " + describe(fault.where);
    if (fault.has_other) {
        fault.other.line = lines[1];
        fault.other.calls = calls_to(fault.other.origin);
        text += "\n  " + describe(fault.other);
    }
    if (fault.since != LocationId() && stands_between(lines.back(), fault.where, fault.other)) {
        text += "\n  both since the barrier at " + lines.back().file + ":" +
                std::to_string(lines.back().line);
    }
    if (!fault.hint.empty()) {
        text += "\n  " + fault.hint;
    }
    Fault result = std::move(fault);
    static_cast<Error&>(result) = Error(text);
    return result;
}

std::string to_string(dim3 index) {
    return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
           std::to_string(index.z) + ")";
}

std::string plural(unsigned long long count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

} // namespace flash::simt
