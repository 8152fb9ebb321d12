// What programs use of the CUDA samples' header of this name. (The samples' own, beside a file,
// comes first.)
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "cuda_runtime.h"
#include "helper_string.h"

template <class Status> void check(Status status, const char* call, const char* file, int line) {
    if (static_cast<int>(status) != 0) {
        const auto error = static_cast<cudaError_t>(status);
        fprintf(stderr, "CUDA error at %s:%d code=%d(%s) \"%s\"\n", file, line,
                static_cast<int>(status), cudaGetErrorName(error), call);
        exit(EXIT_FAILURE);
    }
}
inline void check_last_error(const char* message, const char* file, int line) {
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) {
        fprintf(stderr, "%s(%d) : CUDA error : %s : (%d) %s.\n", file, line, message,
                static_cast<int>(error), cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}
#define checkCudaErrors(call) check((call), #call, __FILE__, __LINE__)
#define getLastCudaError(message) check_last_error(message, __FILE__, __LINE__)

inline int _ConvertSMVer2Cores(int, int) { return 64; } // of compute capability 8.0
inline const char* _ConvertSMVer2ArchName(int, int) { return "Ampere"; }
inline int gpuGetMaxGflopsDeviceId() { return 0; }
inline int gpuDeviceInit(int device) {
    checkCudaErrors(cudaSetDevice(device));
    return device;
}
inline int findCudaDevice(int, const char**) { return gpuDeviceInit(0); }
inline bool checkCudaCapabilities(int major, int minor) {
    cudaDeviceProp gpu;
    checkCudaErrors(cudaGetDeviceProperties(&gpu, 0));
    return gpu.major > major || (gpu.major == major && gpu.minor >= minor);
}
