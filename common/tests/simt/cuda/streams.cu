// Works of streams, in order unless a macro takes a step away.
#include <cstdio>
__global__ void add(float* x, float y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] += y;
}
__global__ void sum(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
__global__ void count(int* counter) { atomicAdd(counter, 1); }
void set_flag(void* flag) { *static_cast<int*>(flag) = 1; }
int main() {
    const int n = 1024, half = n / 2;
    float *a, *b, *c, *host, *managed;
    int* counter;
    cudaStream_t one, two;
    cudaEvent_t done;
#ifdef NON_BLOCKING
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
#else
    cudaStreamCreate(&one);
#endif
    cudaStreamCreate(&two);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaMalloc(&a, n * sizeof(float));
    cudaMalloc(&b, n * sizeof(float));
    cudaMalloc(&c, n * sizeof(float));
    cudaMallocHost(&host, n * sizeof(float));
    cudaMallocManaged(&managed, n * sizeof(float));
    cudaMallocManaged(&counter, sizeof(int));
    for (int i = 0; i < n; ++i)
        host[i] = i;
    // by halves, one in each stream
    cudaMemcpyAsync(a, host, half * sizeof(float), cudaMemcpyHostToDevice, one);
    cudaMemcpyAsync(a + half, host + half, half * sizeof(float), cudaMemcpyHostToDevice, two);
    add<<<2, 256, 0, one>>>(a, 1, half);
    add<<<2, 256, 0, two>>>(a + half, 1, half);
    cudaMemsetAsync(b, 0, n * sizeof(float), two);
    count<<<1, 32, 0, one>>>(counter);
    count<<<1, 32, 0, two>>>(counter); // atomic operations may meet
#ifndef NO_EVENT
    cudaEventRecord(done, two);
    cudaStreamWaitEvent(one, done);
#endif
    sum<<<4, 256, 0, one>>>(a, b, c, n);
    cudaMemcpyAsync(host, c, n * sizeof(float), cudaMemcpyDeviceToHost, one);
#ifndef NO_SYNC
    cudaStreamSynchronize(one);
#endif
    const float last = host[n - 1];
    int flag = 0;
    cudaMemcpyAsync(managed, host, n * sizeof(float), cudaMemcpyHostToDevice, one);
    cudaLaunchHostFunc(one, set_flag, &flag);
    add<<<4, 256>>>(managed, 1, n); // the default stream waits for the others
#ifndef NO_DEVICE_SYNC
    cudaDeviceSynchronize();
#endif
    std::printf("%g %g %d %d\n", last, managed[n - 1], flag, *counter);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
}
