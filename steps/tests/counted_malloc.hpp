// How much memory the rungs ask for. Eigen calls malloc and free from headers, so that these calls
// stand in the object files of the rungs; the linker (--wrap) leads those of this program to
// functions that count.
#pragma once

#include <cstddef>

namespace flash::tests {

/// Bytes since the last reset.
struct MallocCounts {
    size_t peak;    // the most that was allocated at the same time
    size_t largest; // of one request
};

MallocCounts malloc_counts();
void reset_malloc_counts();

/// From now on requests for more than `bytes` fail, as when memory is used up.
void limit_malloc(size_t bytes);

} // namespace flash::tests
