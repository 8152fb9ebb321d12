// Launches with attributes; clusters of several blocks are refused.
#include <cooperative_groups.h>
#include <cstdio>
__global__ void add(int* x, int by) { x[threadIdx.x] += by; }
__global__ void meet(int* x) {
    x[blockIdx.x] = 1;
    cooperative_groups::this_grid().sync();
    x[2 + blockIdx.x] = x[1 - blockIdx.x];
}
int main() {
    int* x;
    cudaMallocManaged(&x, 128);
    for (int i = 0; i < 32; ++i)
        x[i] = i;
    cudaLaunchAttribute attrs[1];
    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 32;
    config.attrs = attrs;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, add, x, 2);
    attrs[0].id = cudaLaunchAttributeCooperative;
    attrs[0].val.cooperative = 1;
    config.gridDim = 2;
    config.blockDim = 1;
    cudaLaunchKernelEx(&config, meet, x);
    cudaDeviceSynchronize();
    printf("%d %d\n", x[31], x[3]);
#ifdef CLUSTERS
    attrs[0].id = cudaLaunchAttributeClusterDimension;
    attrs[0].val.clusterDim.x = 2;
    attrs[0].val.clusterDim.y = attrs[0].val.clusterDim.z = 1;
    cudaLaunchKernelEx(&config, add, x, 2);
#endif
}
