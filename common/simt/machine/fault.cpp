#include "common/simt/machine/fault.hpp"

#include <utility>

namespace flash::simt {
namespace {

std::string describe(const ThreadAction& place) {
    const std::string where =
        place.line.line > 0 ? place.line.file + ":" + std::to_string(place.line.line)
                            : "a line that is not known (" + std::string(why_unresolved) + ")";
    return "thread " + to_string(place.thread) + " of block " + to_string(place.block) + " " +
           place.action + " at " + where;
}

} // namespace

Fault::Fault(FaultKind what, std::string summary_text, ThreadAction place, std::string help)
    : KernelFault(summary_text), kind(what), summary(std::move(summary_text)),
      hint(std::move(help)), where(std::move(place)) {}

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
    const auto lines = resolve(origins);
    fault.where.line = lines[0];
    std::string text = fault.summary + "\n  in " + fault.kernel;
    text += "\n  " + describe(fault.where);
    if (fault.has_other) {
        fault.other.line = lines[1];
        text += "\n  " + describe(fault.other);
    }
    if (!fault.hint.empty()) {
        text += "\n  " + fault.hint;
    }
    Fault result = std::move(fault);
    static_cast<KernelFault&>(result) = KernelFault(text);
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
