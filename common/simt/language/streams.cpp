#include "common/simt/language/streams.hpp"

#include <chrono>
#include <optional>

struct CUstream_st {};
struct CUevent_st {
    bool timed;
    std::optional<std::chrono::steady_clock::time_point> recorded;
};

using flash::simt::noted;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    *stream = new CUstream_st;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new CUevent_st{(flags & cudaEventDisableTiming) == 0, std::nullopt};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (event == nullptr) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    if (event == nullptr) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    event->recorded = std::chrono::steady_clock::now();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    for (const cudaEvent_t event : {start, end}) {
        if (event == nullptr || !event->timed || !event->recorded) {
            return noted(cudaErrorInvalidResourceHandle);
        }
    }
    const std::chrono::duration<float, std::milli> elapsed = *end->recorded - *start->recorded;
    *milliseconds = elapsed.count();
    return cudaSuccess;
}
