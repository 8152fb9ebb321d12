#include "common/simt/language/graphs.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/simt/language/pointer_check.hpp"

struct CUgraphNode_st {
    std::function<void()> work;
};
struct CUgraph_st {
    std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
    CUgraph_st graph;
};

namespace flash::simt {
namespace {

std::mutex mutex;
std::map<const void*, cudaGraph_t>& captures() {
    static std::map<const void*, cudaGraph_t> by_stream;
    return by_stream;
}

cudaError_t add(cudaGraphNode_t* node, cudaGraph_t graph, std::function<void()> work) {
    graph->nodes.push_back(std::make_shared<CUgraphNode_st>(std::move(work)));
    *node = graph->nodes.back().get();
    return cudaSuccess;
}

} // namespace

cudaGraph_t graph_of(const void* stream) {
    const std::lock_guard lock(mutex);
    const auto found = captures().find(stream);
    return found == captures().end() ? nullptr : found->second;
}

void join_capture(const void* stream, cudaGraph_t graph) {
    const std::lock_guard lock(mutex);
    const bool goes_on = std::ranges::any_of(
        captures(), [&](const auto& capture) { return capture.second == graph; });
    if (goes_on) {
        captures()[stream] = graph;
    }
}

bool captured(const void* stream, std::function<void()> work) {
    const cudaGraph_t graph = graph_of(stream);
    cudaGraphNode_t node = nullptr;
    return graph != nullptr && add(&node, graph, std::move(work)) == cudaSuccess;
}

} // namespace flash::simt

using namespace flash::simt;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    // 900 is cudaErrorStreamCaptureUnsupported: the default stream, or one that is captured
    if (stream == nullptr || graph_of(stream) != nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    const std::lock_guard lock(mutex);
    captures()[stream] = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = graph_of(stream);
    if (*graph == nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    const std::lock_guard lock(mutex);
    std::erase_if(captures(), [&](const auto& capture) { return capture.second == *graph; });
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    *status =
        graph_of(stream) != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
    *graph = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (nodes == nullptr) {
        *count = graph->nodes.size();
        return cudaSuccess;
    }
    *count = std::min(*count, graph->nodes.size());
    std::transform(graph->nodes.begin(), graph->nodes.begin() + static_cast<ptrdiff_t>(*count),
                   nodes, [](const auto& node) { return node.get(); });
    return cudaSuccess;
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                  size_t) {
    return add(node, graph, [] {});
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t*, size_t, void* destination,
                                     const void* source, size_t bytes, cudaMemcpyKind kind,
                                     SourceLocation location) {
    return add(node, graph, [=] { cudaMemcpy(destination, source, bytes, kind, location); });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                   size_t, const cudaMemsetParams* params,
                                   SourceLocation location) {
    return add(node, graph, [given = *params, location] {
        const HostCall call{"cudaGraphAddMemsetNode", LocationId::of(location)};
        for (size_t row = 0; row < std::max<size_t>(given.height, 1); ++row) {
            fill_memory(call, static_cast<char*>(given.dst) + row * given.pitch, given.value,
                        given.elementSize, given.width);
        }
    });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                 size_t, const cudaHostNodeParams* params) {
    return add(node, graph, [given = *params] { given.fn(given.userData); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
    *executable = new CUgraphExec_st{*graph};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    for (const auto& node : executable->graph.nodes) {
        on_stream(stream, [&] {
            const HostOnStream at_work(stream); // a function of the host, if it is one
            node->work();
            return cudaSuccess;
        });
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return cudaSuccess;
}
