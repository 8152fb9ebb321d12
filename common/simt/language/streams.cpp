#include "common/simt/language/streams.hpp"

#include <chrono>
#include <optional>

#include "common/simt/language/graphs.hpp"

struct CUstream_st {};
struct CUevent_st {
    bool timed;
    std::optional<std::chrono::steady_clock::time_point> recorded;
    flash::simt::StreamClock clock; // of its stream when it was recorded
    cudaGraph_t graph = nullptr;    // in which it was
};

using namespace flash::simt;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    *stream = new CUstream_st;
    add_stream(*stream, (flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    remove_stream(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new CUevent_st{(flags & cudaEventDisableTiming) == 0, std::nullopt, {}};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (event == nullptr) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (event == nullptr) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    event->recorded = std::chrono::steady_clock::now();
    event->clock = clock_of(stream);
    event->graph = graph_of(stream);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event == nullptr) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    host_waits_for(event->clock);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    host_waits_for(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (event == nullptr) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    if (event->graph != nullptr) {
        join_capture(stream, event->graph);
    }
    stream_waits_for(stream, event->clock);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    return on_stream(stream, [=] {
        const HostOnStream at_work(stream);
        function(data);
        return cudaSuccess;
    });
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
