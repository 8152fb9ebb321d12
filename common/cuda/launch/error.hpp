// Errors of the CUDA runtime become exceptions that say where, what and why.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "common/error.hpp"

namespace flash {

/// Throws Error unless `status` is success. `call` is the call's source text. Clears the error, so
/// that the next call is not blamed for it (an error that a kernel left behind stays: CUDA keeps it
/// until the process ends).
inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
    if (status != cudaSuccess) {
        cudaGetLastError();
        throw Error(std::string(file) + ":" + std::to_string(line) + ": " + call + " failed: " +
                    cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
    }
}

} // namespace flash

// A macro, because only the preprocessor can quote the call.
#define FLASH_CHECK_CUDA(call) ::flash::check_cuda((call), #call, __FILE__, __LINE__)
