#include "common/simt/machine/host_misuse.hpp"

#include <exception>

#include "common/simt/machine/run_log.hpp"

namespace flash::simt {

Fault host_misuse(const std::string& call, const std::string& what, LocationId origin) {
    const SourceLine line = resolve({origin}).front();
    const std::string place =
        line.line > 0 ? line.file + ":" + std::to_string(line.line)
                      : "a line that is not known (" + std::string(why_unresolved) + ")";
    Fault fault(FaultKind::host_misuse, call + " at " + place + ": " + what);
    fault.where.origin = origin;
    fault.where.line = line;
    run_log().add_last(fault);
    return fault;
}

void end_program(const Fault& fault) noexcept {
    std::rethrow_exception(std::make_exception_ptr(fault));
}

} // namespace flash::simt
