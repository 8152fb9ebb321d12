// Through which calls a thread came to a place in the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/machine/location_id.hpp"

namespace flash::simt {

/// A device function, and the line of its caller.
struct Call {
    std::string function; // "warp_sum<float>"
    SourceLine called_at;
};

/// The number of a call that a device function, or the kernel, makes: of its code address behind
/// the call and one inside the function that is called. `caller` is the number of the call of the
/// caller; 0 is the kernel.
uint32_t call_number(uint32_t caller, uint32_t from, uint32_t into);

/// Where a call was made.
LocationId place_of_call(uint32_t number);

/// The device functions around a place, inlined or not, the innermost first. The kernel is not
/// among them, nor is the runtime.
std::vector<Call> calls_to(LocationId place);

} // namespace flash::simt
