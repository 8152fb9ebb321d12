#include "common/simt/report/ending.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {
namespace {

const char* name_of(Ending how) {
    constexpr const char* names[] = {"clean",       "warning",     "fault",    "timeout",
                                     "unsupported", "interrupted", "unchecked"};
    return names[static_cast<int>(how)];
}

nlohmann::json json_of(dim3 index) { return {index.x, index.y, index.z}; }

nlohmann::json json_of(const ThreadAction& action) {
    nlohmann::json calls = nlohmann::json::array();
    for (const Call& call : action.calls) {
        calls.push_back({{"function", call.function},
                         {"file", call.called_at.file},
                         {"line", call.called_at.line}});
    }
    return {{"block", json_of(action.block)}, {"thread", json_of(action.thread)},
            {"action", action.action},        {"file", action.line.file},
            {"line", action.line.line},       {"calls", calls}};
}

nlohmann::json json_of(const Fault& fault) {
    nlohmann::json document = {{"kind", fault.name},
                               {"message", fault.summary},
                               {"hint", fault.hint},
                               {"text", fault.what()},
                               {"kernel", fault.kernel}};
    document.update(json_of(fault.where));
    document["other"] = fault.has_other ? json_of(fault.other) : nlohmann::json();
    return document;
}

nlohmann::json json_of(const std::vector<Fault>& faults) {
    nlohmann::json all = nlohmann::json::array();
    for (const Fault& fault : faults) {
        all.push_back(json_of(fault));
    }
    return all;
}

/// "3 kernels, 5 launches (4 watched)"
std::string extent() {
    const RunLog& log = run_log();
    if (log.kernels().empty()) {
        return "no kernel was launched";
    }
    std::string text = plural(log.kernels().size(), "kernel") + ", " +
                       std::to_string(log.launches()) +
                       (log.launches() == 1 ? " launch" : " launches");
    if (log.watched() != log.launches()) {
        text += " (" + (log.watched() == 0 ? "none" : std::to_string(log.watched())) + " watched)";
    }
    return text;
}

} // namespace

Ending ending() {
    const RunLog& log = run_log();
    const auto timed_out = [](const Fault& fault) { return fault.kind == FaultKind::timeout; };
    return !log.unsupported().empty()                     ? Ending::unsupported
           : log.interrupted_by() == out_of_time          ? Ending::timeout
           : log.interrupted_by() != 0                    ? Ending::interrupted
           : std::ranges::any_of(log.faults(), timed_out) ? Ending::timeout
           : !log.faults().empty()                        ? Ending::fault
           : options().detect && log.watched() == 0       ? Ending::unchecked
           : !log.warnings().empty()                      ? Ending::warning
                                                          : Ending::clean;
}

std::string ending_line() {
    const RunLog& log = run_log();
    const std::string warnings = plural(log.warnings().size(), "warning");
    std::string text;
    switch (ending()) {
    case Ending::unsupported:
        text = "not supported";
        break;
    case Ending::interrupted:
        text = "interrupted";
        break;
    case Ending::timeout:
        text = "timeout";
        break;
    case Ending::unchecked:
        text = "nothing was checked";
        break;
    default:
        text = log.faults().empty() ? "no fault found" : plural(log.faults().size(), "fault");
    }
    if (!log.warnings().empty()) {
        text += ", " + warnings;
    }
    text += ": " + extent();
    if (const Schedule& schedule = options().schedule; schedule.kind != Schedule::in_order) {
        text += ", schedule " + to_string(schedule);
    }
    if (!options().kernel.empty() && log.watched() == 0) {
        text += "\nno kernel is called " + options().kernel;
        for (const KernelRuns& one : log.kernels()) {
            text += (&one == &log.kernels().front() ? "; there is " : ", ") + one.name;
        }
    } else if (log.watched() != log.launches() && options().launches != 0) {
        text += "\nthe detector watches the first " +
                (options().launches == 1 ? "launch"
                                         : std::to_string(options().launches) + " launches") +
                " of each kernel; --launches 0 watches all";
    }
    if (log.sampled() != 0) {
        text += "\n" + std::to_string(log.sampled()) +
                (log.sampled() == 1 ? " launch" : " launches") +
                " ran a sample of the blocks: what the program computes is not its result";
    }
    return text;
}

int exit_code(int code) {
    switch (ending()) {
    case Ending::fault:
        return exit_fault;
    case Ending::timeout:
        return exit_timeout;
    case Ending::unsupported:
        return exit_unsupported;
    case Ending::interrupted:
        return 128 + run_log().interrupted_by();
    case Ending::unchecked:
        return code == 0 ? exit_unchecked : code;
    default:
        return code;
    }
}

std::string ending_json(int program_exit_code) {
    const RunLog& log = run_log();
    nlohmann::json kernels = nlohmann::json::array();
    for (const KernelRuns& one : log.kernels()) {
        kernels.push_back(
            {{"name", one.name}, {"launches", one.launches}, {"watched", one.watched}});
    }
    const nlohmann::json document = {{"version", 1},
                                     {"verdict", name_of(ending())},
                                     {"exit_code", exit_code(program_exit_code)},
                                     {"program_exit_code", program_exit_code},
                                     {"schedule", to_string(options().schedule)},
                                     {"launches", log.launches()},
                                     {"launches_watched", log.watched()},
                                     {"launches_sampled", log.sampled()},
                                     {"kernels", kernels},
                                     {"faults", json_of(log.faults())},
                                     {"warnings", json_of(log.warnings())},
                                     {"unsupported", log.unsupported()}};
    return document.dump(2) + "\n";
}

} // namespace flash::simt
