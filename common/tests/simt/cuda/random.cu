// Random numbers in kernels, and arrays of them.
#include <cstdio>
#include <curand.h>
#include <curand_kernel.h>
__global__ void init(curandState* states, unsigned long long seed) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(seed, i, 0, &states[i]);
}
__global__ void draw(curandState* states, float* inside, float* normal, int times) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandState own = states[i];
    int count = 0;
    float sum = 0;
    for (int t = 0; t < times; ++t) {
        const float x = curand_uniform(&own), y = curand_uniform(&own);
        count += x * x + y * y <= 1;
        sum += curand_normal(&own);
    }
    states[i] = own;
    inside[i] = count / float(times);
    normal[i] = sum / times;
}
float mean(const float* of, int n) {
    double sum = 0;
    for (int i = 0; i < n; ++i)
        sum += of[i];
    return sum / n;
}
int main() {
    const int n = 256;
    curandState* states;
    float *inside, *normal, *numbers, host[n];
    cudaMalloc(&states, n * sizeof *states);
    cudaMallocManaged(&inside, n * sizeof(float));
    cudaMallocManaged(&normal, n * sizeof(float));
    cudaMalloc(&numbers, n * sizeof(float));
    init<<<2, 128>>>(states, 1234);
    draw<<<2, 128>>>(states, inside, normal, 200);
    cudaDeviceSynchronize();
    const float pi = 4 * mean(inside, n), middle = mean(normal, n);
    std::printf("%d %d\n", pi > 3.1f && pi<3.18f, middle> - 0.02f && middle < 0.02f);
    curandGenerator_t generator;
    curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT);
    curandSetPseudoRandomGeneratorSeed(generator, 42);
    curandGenerateUniform(generator, numbers, n);
    cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost);
    const float half = mean(host, n);
    const curandStatus_t odd = curandGenerateNormal(generator, numbers, n - 1, 0.0f, 1.0f);
    curandGenerateNormal(generator, numbers, n, 5.0f, 2.0f);
    cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost);
    const float five = mean(host, n);
    std::printf("%d %d %d\n", half > 0.45f && half<0.55f, odd, five> 4.6f && five < 5.4f);
    curandDestroyGenerator(generator);
#ifdef TOO_MANY
    curandGenerateUniform(generator, numbers, n + 1);
#endif
}
