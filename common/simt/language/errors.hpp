// CUDA's error codes: those that programs name, and those that the calls of this folder return.
#pragma once

#define FLASH_SIMT_ERRORS(ERROR)                                                                   \
    ERROR(cudaSuccess, 0, "no error")                                                              \
    ERROR(cudaErrorInvalidValue, 1, "invalid argument")                                            \
    ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                                           \
    ERROR(cudaErrorInitializationError, 3, "initialization error")                                 \
    ERROR(cudaErrorCudartUnloading, 4, "driver shutting down")                                     \
    ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                      \
    ERROR(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                \
    ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                     \
    ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                             \
    ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                \
    ERROR(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient")                  \
    ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                           \
    ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                            \
    ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                   \
    ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                          \
    ERROR(cudaErrorNotReady, 600, "device not ready")                                              \
    ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                \
    ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")           \
    ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                  \
    ERROR(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                \
    ERROR(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")                  \
    ERROR(cudaErrorAssert, 710, "device-side assert triggered")                                    \
    ERROR(cudaErrorHostMemoryAlreadyRegistered, 712, "resource already mapped")                    \
    ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                               \
    ERROR(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")        \
    ERROR(cudaErrorNotPermitted, 800, "operation not permitted")                                   \
    ERROR(cudaErrorNotSupported, 801, "operation not supported")                                   \
    ERROR(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define FLASH_SIMT_ERROR(name, number, text) name = number,
    FLASH_SIMT_ERRORS(FLASH_SIMT_ERROR)
#undef FLASH_SIMT_ERROR
};
using cudaError_t = cudaError;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

// A launch throws what is wrong with it, so what these know are errors of other calls.
cudaError_t cudaGetLastError(); // and forgets it
cudaError_t cudaPeekAtLastError();

namespace flash::simt {

/// What a call of the runtime returns: an error is also what cudaGetLastError returns next.
cudaError_t noted(cudaError_t error);

} // namespace flash::simt
