// Streams and events. Every call and every launch is over when it returns, unless a graph captures
// it. What orders them on a GPU is kept by machine/stream_order.hpp. An event holds the time at
// which it was recorded: between two of them passes the time that this computer took, not a GPU's.
#pragma once

#include <functional>

#include "common/simt/language/cuda_runtime.hpp"
#include "common/simt/language/errors.hpp"
#include "common/simt/machine/stream_order.hpp"

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
#define CUDART_CB
using cudaHostFn_t = void (*)(void* data);
using cudaStreamCallback_t = void (*)(cudaStream_t stream, cudaError_t status, void* data);

// A macro as in CUDA: this 0 is a flag, and also a stream.
#define cudaStreamDefault 0x00
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline const cudaStream_t cudaStreamLegacy = reinterpret_cast<cudaStream_t>(1);
inline const cudaStream_t cudaStreamPerThread = reinterpret_cast<cudaStream_t>(2);
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaEventInterprocess = 4;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags = cudaEventDefault) {
    return cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event);
inline cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                         void* data, unsigned) {
    const flash::simt::HostOnStream at_work(stream);
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}

namespace flash::simt {

/// What a stream is given while it is captured; false: it is not.
bool captured(const void* stream, std::function<void()> work);

/// A call for a stream.
template <class Work> cudaError_t on_stream(const void* stream, Work work) {
    if (captured(stream, work)) {
        return cudaSuccess;
    }
    const OnStream at_hand(stream);
    return work();
}

} // namespace flash::simt
