// The loop of the CPU rungs over the processor's cores.
#pragma once

#include <cstdint>
#include <exception>

namespace flash::cpu {

/// Calls work(0) to work(count - 1), each once, in any order, on as many threads as OpenMP has. An
/// exception that one of them throws (out of memory, say) must not leave its thread: it is thrown
/// again here, once all have ended.
template <class Work> void parallel_for(int64_t count, const Work& work) {
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < count; ++n) {
        try {
            work(n);
        } catch (...) {
#pragma omp critical
            failure = std::current_exception();
        }
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

} // namespace flash::cpu
