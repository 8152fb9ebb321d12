// Accesses of the host's instrumented code: device memory is not its own.
#pragma once

#include <cstddef>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/observer.hpp"

namespace flash::simt {

/// Where the device's variables lie, and perhaps others of the program. Everywhere, until somebody
/// has asked.
struct VariableSpan {
    const char* begin;
    size_t bytes;
};
extern constinit VariableSpan device_variable_span;

/// Few addresses, and all that are the device's alone.
inline bool may_be_of_device(const void* address) {
    const auto* const place = static_cast<const char*>(address);
    return reserved.contains(place) ||
           static_cast<size_t>(place - device_variable_span.begin) < device_variable_span.bytes;
}

/// Ends the program if no kernel is at work and the memory is the device's alone.
void check_host_access(const void* address, size_t bytes, AccessKind kind,
                       const void* return_address);

} // namespace flash::simt
