// Graphs: two streams that are captured, and nodes one by one.
#include <cstdio>
__global__ void add(int* x, int by) { x[threadIdx.x] += by; }
void note(void* calls) { ++*static_cast<int*>(calls); }
int main() {
    const size_t bytes = 32 * sizeof(int);
    int *x, host[32], calls = 0;
    cudaMalloc(&x, bytes);
    cudaMemset(x, 0, bytes);
    cudaStream_t one, two;
    cudaStreamCreate(&one);
    cudaStreamCreateWithPriority(&two, cudaStreamNonBlocking, 0);
    cudaEvent_t fork, join;
    cudaEventCreate(&fork);
    cudaEventCreate(&join);
    cudaGraph_t graph;
    cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal);
    add<<<1, 32, 0, one>>>(x, 1);
    cudaEventRecord(fork, one);
    cudaStreamWaitEvent(two, fork, 0);
    add<<<1, 32, 0, two>>>(x, 10);
    cudaEventRecord(join, two);
    cudaStreamWaitEvent(one, join, 0);
    cudaLaunchHostFunc(one, note, &calls);
    cudaStreamEndCapture(one, &graph);
    size_t nodes = 0;
    cudaGraphGetNodes(graph, nullptr, &nodes);
    cudaGraphExec_t executable;
    cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0);
    cudaMemcpy(host, x, bytes, cudaMemcpyDeviceToHost);
    std::printf("%zu %d %d\n", nodes, host[7], calls);
    for (int i = 0; i < 3; ++i)
        cudaGraphLaunch(executable, one);
    cudaStreamSynchronize(one);
    cudaMemcpy(host, x, bytes, cudaMemcpyDeviceToHost);
    std::printf("%d %d\n", host[7], calls);
    cudaGraph_t made;
    cudaGraphNode_t clear, copy;
    cudaMemsetParams params = {x, 0, 3, sizeof(int), 32, 1};
    cudaGraphCreate(&made, 0);
    cudaGraphAddMemsetNode(&clear, made, nullptr, 0, &params);
    cudaGraphAddMemcpyNode1D(&copy, made, &clear, 1, host, x, bytes, cudaMemcpyDeviceToHost);
    cudaGraphExecDestroy(executable);
    cudaGraphInstantiate(&executable, made);
    cudaGraphLaunch(executable, two);
    cudaStreamSynchronize(two);
    std::printf("%d\n", host[7]);
}
