#include "common/simt/machine/host_misuse.hpp"

#include <exception>

#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {

namespace {

Fault at_place(FaultKind kind, const std::string& call, const std::string& what,
               LocationId origin) {
    const SourceLine line = resolve({origin}).front();
    const std::string place =
        line.line > 0 ? line.file + ":" + std::to_string(line.line)
                      : "a line that is not known (" + std::string(why_unresolved) + ")";
    Fault fault(kind, call + " at " + place + ": " + what);
    fault.where.origin = origin;
    fault.where.line = line;
    return fault;
}

} // namespace

Fault host_misuse(const std::string& call, const std::string& what, LocationId origin) {
    Fault fault = at_place(FaultKind::host_misuse, call, what, origin);
    run_log().add_last(fault);
    return fault;
}

void host_doubt(const std::string& call, const std::string& what, LocationId origin) {
    Fault doubt = at_place(FaultKind::unwritten_copy, call, what, origin);
    if (is_ignored(doubt)) {
        return;
    }
    if (options().strict) {
        run_log().add_last(doubt);
        throw doubt;
    }
    run_log().add_warning(std::move(doubt));
}

constinit Report* report_before_abort = nullptr;

void end_program(const Fault& fault) noexcept {
    std::rethrow_exception(std::make_exception_ptr(fault));
}

} // namespace flash::simt
