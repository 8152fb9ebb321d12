#include "common/simt/observers/host_access.hpp"

#include <cstdint>
#include <optional>
#include <string>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/host_misuse.hpp"
#include "common/simt/machine/stream_order.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {
namespace {

VariableSpan find_variables() {
    if (device_variables().empty()) {
        return {nullptr, 0};
    }
    const char* const begin = device_variables().front().begin;
    const Variable& last = device_variables().back();
    return {begin, static_cast<size_t>(last.begin + last.bytes - begin)};
}

/// What the device alone has at an address: "d_x, memory of cudaMalloc"; none if it has nothing.
std::optional<std::string> name_on_device(const void* address) {
    if (!reserved.contains(address)) { // arena() may be at work on this very thread
        const std::optional<Variable> variable = variable_at(address);
        return variable &&
                       (variable->kind == Variable::device || variable->kind == Variable::constant)
                   ? std::optional(variable->name + ", a variable of the device")
                   : std::nullopt;
    }
    const DeviceMemory* const memory = memory_around(address);
    if (memory == nullptr) {
        return "device memory that has been freed";
    }
    return memory->kind() == DeviceMemory::Kind::device
               ? std::optional(buffer_around(address)->name + ", device memory")
               : std::nullopt;
}

} // namespace

constinit VariableSpan device_variable_span{nullptr, SIZE_MAX};

void check_host_access(const void* address, size_t bytes, AccessKind kind,
                       const void* return_address) {
    // What finds out may be instrumented itself.
    static constinit thread_local bool at_work = false;
    if (running_block != nullptr || at_work || reads_symbols()) {
        return;
    }
    struct AtWork {
        AtWork() { at_work = true; }
        ~AtWork() { at_work = false; }
    } const finds_out;
    if (device_variable_span.bytes == SIZE_MAX) {
        device_variable_span = find_variables();
        if (!may_be_of_device(address)) {
            return;
        }
    }
    if (works_are_pending && reserved.contains(address)) {
        touch_by_host(static_cast<const char*>(address), bytes, kind != AccessKind::load,
                      LocationId::of_code(return_address, executable().load_address));
    }
    if (const auto name = name_on_device(address)) {
        end_program(host_misuse("the host",
                                std::string("it ") +
                                    (kind == AccessKind::load ? "reads " : "writes ") +
                                    plural(bytes, "byte") + " of " + *name +
                                    "; only kernels may touch it, cudaMemcpy copies it",
                                LocationId::of_code(return_address, executable().load_address)));
    }
}

} // namespace flash::simt
