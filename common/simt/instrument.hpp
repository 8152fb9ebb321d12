// How the runtime sees what kernels do to memory: the calls that g++ -fsanitize=thread puts before every access.
#pragma once

#include <cstdint>

#include "common/simt/origin.hpp"

namespace flash::simt {

enum class Kind : uint8_t { load, store, atomic };
enum class Space : uint8_t { global, shared, elsewhere };

/// One access of one thread.
struct AccessEvent {
    const char* address;
    unsigned bytes;
    Kind kind;
    Origin origin;
};

/// Whether any kernel of this program was compiled with the calls.
bool is_instrumented();

/// Throws Error, with how to get it, unless that is so.
void require_instrumented();

} // namespace flash::simt
